"""FedTPG's prompt generator: learned queries attend to class names and become context vectors.

Cross-attention from learned queries [m, width] to the text features [classes, D] of the bare names
(layer norms before it, no residual around it), then x + FFN(LN(x)) with a gated GELU of four times
the width. So the prompt depends on the classes of a node or of a test set.
"""

from __future__ import annotations

from typing import Final

import torch.nn.functional as F
from torch import Tensor

from fednode.core.types import Array, Tensors
from fednode.errors import ConfigError
from fednode.learn import initial
from fednode.learn.objective import Batch, Classifier, Given, Parameters, Plain, Tuning, Written

EXPANSION: Final = 4
"""The network's inner layer is so many times as wide as its outer layers."""
HEADS: Final = 4
"""Heads of the cross-attention, as in the released code."""


class Objective(Written):
    """Train the generator by cross-entropy on cached image features."""

    def initial(self, seed: int) -> Tensors:
        """Return the network with torch's initial layers and normal queries.

        The attention starts as torch's MultiheadAttention does: weights of queries, keys and values
        are drawn as one matrix if all have the same width, and their biases are zero.
        """
        initial.refuse_words(self.settings, "fedtpg")
        width, draw = self.backbone.text.width, initial.generator(seed)
        if width % HEADS:
            raise ConfigError(
                f"The text width of {self.backbone.label} is {width}, which the {HEADS} heads of "
                "FedTPG's network do not divide: choose another model (model.name)."
            )
        features = self.written(("thing",)).shape[1]
        wide = EXPANSION * width
        attend = {"query": width, "key": features, "value": features}
        layers = {
            "attend.out": (width, width),
            "ffn.in": (2 * wide, width),
            "ffn.out": (width, wide),
        }
        arrays: dict[str, Array] = {
            "queries": initial.normal(draw, (self.settings.vectors, width), self.settings.init_std)
        }
        for name, inputs in attend.items():
            rows = 3 * width if features == width else width
            arrays[f"attend.{name}.weight"] = initial.glorot(draw, (width, inputs), rows)
            arrays[f"attend.{name}.bias"] = initial.normal(draw, (width,), 0.0)
        for name, shape in layers.items():
            arrays[f"{name}.weight"] = initial.uniform(draw, shape, shape[1])
            still = 0.0 if name == "attend.out" else 1.0
            arrays[f"{name}.bias"] = still * initial.uniform(draw, shape[:1], shape[1])
        for name, size in {"query": width, "names": features, "ffn": width}.items():
            arrays[f"norm.{name}.weight"] = initial.normal(draw, (size,), 0.0) + 1.0
            arrays[f"norm.{name}.bias"] = initial.normal(draw, (size,), 0.0)
        return Tensors(arrays)

    def begin(self, given: Given) -> Tuning:
        """Return the cross-entropy with the prompts that the network makes of the node's names."""

        def loss(batch: Batch) -> Tensor:
            texts = self._encode(given.prompts, given.classes)
            return F.cross_entropy(self.scaled(batch.seen, texts), batch.truth)

        return Plain(loss)

    def classifier(self, prompts: Parameters, classes: tuple[str, ...]) -> Classifier:
        """Return s * cos with the prompts that the network makes of these names."""
        texts = self._encode(prompts, classes)
        return lambda batch: self.scaled(batch.seen, texts)

    def context(self, weights: Parameters, classes: tuple[str, ...]) -> Tensor:
        """Return the context vectors [m, width] for class names."""

        def norm(name: str, x: Tensor) -> Tensor:
            scale, shift = (weights[f"norm.{name}.{part}"] for part in ("weight", "bias"))
            return F.layer_norm(x, scale.shape, scale, shift)

        def linear(name: str, x: Tensor) -> Tensor:
            return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

        names = norm("names", self.texts.written(classes, "{}"))
        q = self._heads(linear("attend.query", norm("query", weights["queries"])))
        k, v = (self._heads(linear(f"attend.{part}", names)) for part in ("key", "value"))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1)
        x = linear("attend.out", mixed)
        value, gate = linear("ffn.in", norm("ffn", x)).chunk(2, dim=1)
        return x + linear("ffn.out", value * F.gelu(gate))

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(len(x), HEADS, -1).transpose(0, 1)

    def _encode(self, weights: Parameters, classes: tuple[str, ...]) -> Tensor:
        tokens = self.texts.tokens(classes, self.settings.vectors)
        return self.backbone.text.encode(tokens, self.context(weights, classes))
