"""FedCLIP's adapter: softmax(W2 tanh(W1 f + b1) + b2) * f on image features f; texts are fixed.

f is the image tower's output as it is, as in the released code; only the product is made unit. Unit
features would be some ten times smaller with CLIP, and the softmax nearly flat for all images. The
initial softmax is nearly flat, so an untrained adapter is nearly zero-shot CLIP.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.core.types import Tensors
from fednode.learn import initial
from fednode.learn.objective import Batch, Classifier, Given, Parameters, Plain, Tuning, Written


class Objective(Written):
    """Adapt cached image features; 2 D (D + 1) numbers for features of width D."""

    def initial(self, seed: int) -> Tensors:
        """Return two linear layers with torch's initial values."""
        initial.refuse_words(self.settings, "fedclip")
        draw, width = initial.generator(seed), self.written(("thing",)).shape[1]
        shapes = {
            "first.weight": (width, width),
            "first.bias": (width,),
            "second.weight": (width, width),
            "second.bias": (width,),
        }
        return Tensors(
            {name: initial.uniform(draw, shape, width) for name, shape in shapes.items()}
        )

    def begin(self, given: Given) -> Tuning:
        """Return the code's contrastive loss over the batch, or the cross-entropy over classes."""
        written = self.written(given.classes)

        def loss(batch: Batch) -> Tensor:
            adapted = self._adapt(given.prompts, batch.raw)
            if self.config.loss == "ce":
                return F.cross_entropy(self.scaled(adapted, written), batch.truth)
            logits = self.scaled(adapted, written[batch.truth])
            own = torch.arange(len(logits), device=logits.device)
            return 0.5 * (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own))

        return Plain(loss)

    def classifier(self, prompts: Parameters, classes: tuple[str, ...]) -> Classifier:
        """Return s * cos of adapted image features with the hand-written texts."""
        written = self.written(classes)
        return lambda batch: self.scaled(self._adapt(prompts, batch.raw), written)

    def _adapt(self, weights: Parameters, features: Tensor) -> Tensor:
        hidden = torch.tanh(F.linear(features, weights["first.weight"], weights["first.bias"]))
        attention = F.linear(hidden, weights["second.weight"], weights["second.bias"])
        return F.normalize(attention.softmax(dim=1) * features, dim=1)
