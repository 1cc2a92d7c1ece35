"""MaPLe's coupled prompts: visual prompts are projections of the text prompts, block by block.

There are context vectors [m, text width] in the first block and `depth` - 1 further sets, each of
which replaces the set before it. Each set has its own projection to the width of the image tower.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.core.types import Tensors
from fednode.learn import initial
from fednode.learn.objective import Batch, Classifier, Given, Parameters, Plain, Tuning, Written


class Objective(Written):
    """Tune both towers by cross-entropy; needs tokens or pixels."""

    looks = True

    def initial(self, seed: int) -> Tensors:
        """Return words or normal vectors, normal deeper prompts, and torch's layers."""
        text, vision, draw = self.backbone.text, self.backbone.vision, initial.generator(seed)
        length, wide = self.settings.vectors, vision.width  # says so if there are no prompts
        depth = max(1, min(self.config.depth, text.layers, vision.layers))
        deeper = (depth - 1, length, text.width)
        return Tensors(
            {
                "context": initial.context(self.backbone, self.settings, draw),
                "deeper": initial.normal(draw, deeper, self.settings.init_std),
                "projection.weight": initial.uniform(draw, (depth, wide, text.width), text.width),
                "projection.bias": initial.uniform(draw, (depth, wide), text.width),
            }
        )

    def begin(self, given: Given) -> Tuning:
        """Return the cross-entropy over the node's classes."""

        def loss(batch: Batch) -> Tensor:
            texts = self._texts(given.prompts, given.classes)
            seen = self._see(given.prompts, batch.looked)
            return F.cross_entropy(self.scaled(seen, texts), batch.truth)

        return Plain(loss)

    def classifier(self, prompts: Parameters, classes: tuple[str, ...]) -> Classifier:
        """Return s * cos of prompted image features with prompted texts."""
        texts = self._texts(prompts, classes)
        return lambda batch: self.scaled(self._see(prompts, batch.looked), texts)

    def _texts(self, prompts: Parameters, classes: tuple[str, ...]) -> Tensor:
        tokens = self.texts.tokens(classes, self.settings.vectors)
        deeper = prompts["deeper"] if len(prompts["deeper"]) else None
        return self.backbone.text.encode(tokens, prompts["context"], deeper)

    def _see(self, prompts: Parameters, pixels: Tensor) -> Tensor:
        every = torch.cat([prompts["context"][None], prompts["deeper"]])
        bias = prompts["projection.bias"][:, None]
        visual = torch.baddbmm(bias, every, prompts["projection.weight"].transpose(1, 2))
        return self.backbone.vision.encode(pixels, visual).features
