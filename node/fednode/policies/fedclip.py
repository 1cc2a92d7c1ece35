"""FedCLIP (Lu et al. 2023): an attention adapter behind the image tower, averaged in every round.

    a(f)     = softmax(W2 tanh(W1 f + b1) + b2) * f        f: image features, not made unit
    logits_c = s * cos(a(f), g(hand-written prompt of class c))

As in the released code, f is the image tower's output as it is, and only the product is made unit.
Unit features would be some ten times smaller with CLIP, and the softmax nearly flat for all images.
The softmax is nearly flat at the start, so an untrained adapter is nearly zero-shot CLIP.

The released code's loss is contrastive and symmetric over the batch: two images of one class count
as different. `loss: ce` is the cross-entropy over the node's classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from fednode.core.rounds.averaging import Averaging, AveragingConfig
from fednode.core.types import Json, Tensors
from fednode.lazy import F, Tensor, torch
from fednode.learn import init
from fednode.learn.prompt_module import Batch, JobInputs, PromptModule


@dataclass(frozen=True, slots=True)
class FedCLIPConfig(AveragingConfig):
    """FedCLIP (Lu et al. 2023): an adapter behind the images, averaged in every round."""

    weights: Literal["samples", "equal"] = "equal"
    loss: Literal["contrastive", "ce"] = "contrastive"
    """contrastive: the released code's loss, symmetric over the batch, in which two images of one
    class count as different. ce: cross-entropy over the node's classes."""


class FedCLIPAdapter(PromptModule):
    """An adapter of cached image features: 2 D (D + 1) numbers for features of width D."""

    config: FedCLIPConfig

    def initial(self, seed: int) -> Tensors:
        """Return two linear layers with torch's initial values."""
        init.refuse_words(self.settings, "fedclip")
        draw, width = init.generator(seed), self.handwritten(("thing",)).shape[1]
        shapes = {
            "first.weight": (width, width),
            "first.bias": (width,),
            "second.weight": (width, width),
            "second.bias": (width,),
        }
        return Tensors({name: init.uniform(draw, shape, width) for name, shape in shapes.items()})

    def text_features(self, params: Mapping[str, Tensor], classes: tuple[str, ...]) -> Tensor:
        """Return the hand-written prompt's features: no text is tuned."""
        return self.handwritten(classes)

    def image_features(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Return a(f), made unit."""
        features = batch.raw_features
        hidden = torch.tanh(F.linear(features, params["first.weight"], params["first.bias"]))
        attention = F.linear(hidden, params["second.weight"], params["second.bias"])
        return F.normalize(attention.softmax(dim=1) * features, dim=1)

    def loss(self, batch: Batch, inputs: JobInputs) -> Tensor:
        """Return the released code's contrastive loss, or the cross-entropy."""
        if self.config.loss == "ce":
            return super().loss(batch, inputs)
        texts = self.handwritten(inputs.classes)[batch.targets]
        logits = self.clip_logits(self.image_features(inputs.params, batch), texts)
        own = torch.arange(len(logits), device=logits.device)
        return 0.5 * (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own))


class FedCLIP(Averaging):
    """See the file's header."""

    name = "fedclip"
    config_type = FedCLIPConfig
    prompts = FedCLIPAdapter
    tuning: ClassVar[Mapping[str, Json]] = {
        "lr": 5e-05,
        "optimizer": "adam",
        "betas": [0.9, 0.98],
        "eps": 1e-06,
        "weight_decay": 0.2,
        "batch_size": 32,
        "schedule": "constant",
        "template": "a picture of a {}.",
    }
