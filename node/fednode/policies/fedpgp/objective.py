"""FedPGP's objective: a global prompt, a private change of low rank, and a contrast of their texts.

    P = G + U V                         G [m, width] is averaged; U [m, b], V [b, width] stay
    L = CE(s cos(f, g(P))) + mu L_con
    L_con = mean_c log(1 + exp((cos(g(G), g(P)) - cos(a, g(G))) / t))

a is the hand-written text of class c. L_con is -log of the softmax over two cosines: the anchor is
the positive, the node's own text the negative. It does not depend on images. G has a gradient from
both cosines, U and V from the second.
"""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.core.types import Tensors
from fednode.learn import initial
from fednode.learn.objective import Batch, Classifier, Given, Parameters, Plain, Tuning, Written
from fednode.policies.fedpgp.config import FedPGPConfig

GLOBAL: Final = "global"
LEFT: Final = "left"
RIGHT: Final = "right"


class Objective(Written):
    """Tune a prompt and a change of it on cached image features; only "global" is exchanged."""

    config: FedPGPConfig

    def initial(self, seed: int) -> Tensors:
        """Return the global prompt."""
        return Tensors(
            {GLOBAL: initial.context(self.backbone, self.settings, initial.generator(seed))}
        )

    def private(self, seed: int) -> Tensors:
        """Return the change's two matrices, drawn with deviation `init_std`; neither is zero."""
        draw, settings = initial.generator(seed), self.settings
        left = (settings.vectors, self.config.rank)
        right = (self.config.rank, self.backbone.text.width)
        return Tensors(
            {
                LEFT: initial.normal(draw, left, settings.init_std),
                RIGHT: initial.normal(draw, right, settings.init_std),
            }
        )

    def begin(self, given: Given) -> Tuning:
        """Return the cross-entropy with the node's own prompt, plus mu times the contrast."""

        def loss(batch: Batch) -> Tensor:
            contexts = torch.stack([given.prompts[GLOBAL], personal(given.prompts)])
            common, own = self._encode(contexts, given.classes)
            total = F.cross_entropy(self.scaled(batch.seen, own), batch.truth)
            if not self.config.contrast:
                return total
            return total + self.config.contrast * self._contrast(common, own, given.classes)

        return Plain(loss)

    def classifier(self, prompts: Parameters, classes: tuple[str, ...]) -> Classifier:
        """Return s * cos with the prompt of `predict`; a node without a change has the global."""
        own = self.config.predict == "personal" and LEFT in prompts
        context = personal(prompts) if own else prompts[GLOBAL]
        texts = self._encode(context, classes)
        return lambda batch: self.scaled(batch.seen, texts)

    def anchors(self, classes: tuple[str, ...]) -> Tensor:
        """Return the hand-written unit text features [classes, D] of the contrastive term."""
        if self.config.anchor == "template":
            return self.written(classes)
        letters = " ".join("X" * self.settings.vectors)
        return self.texts.written(classes, f"{letters} {{}}.")

    def _contrast(self, common: Tensor, own: Tensor, classes: tuple[str, ...]) -> Tensor:
        near = (self.anchors(classes) * common).sum(dim=1)
        far = (common * own).sum(dim=1)
        return F.softplus((far - near) / self.config.temperature).mean()

    def _encode(self, context: Tensor, classes: tuple[str, ...]) -> Tensor:
        tokens = self.texts.tokens(classes, self.settings.vectors)
        return self.backbone.text.encode(tokens, context)


def personal(prompts: Parameters) -> Tensor:
    """Return G + U V, [m, width]."""
    return prompts[GLOBAL] + prompts[LEFT] @ prompts[RIGHT]
