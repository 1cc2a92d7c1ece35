"""Explain tuned prompts: nearest words, attention maps, and image features before and after.

    words      the vocabulary's nearest embeddings to each learned vector (CoOp; Fed-DPT, table 4)
    maps       where the image tower looks for a class, without and with tuning (PLAN, figure 7)
    features   of images, without and with tuning, to be drawn on a plane (PLAN, figure 6)

The policy's own classifier runs on a model whose towers record their inputs and outputs. So all
policies are explained in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fednode.clip import backbone
from fednode.clip.backbone import Backbone
from fednode.clip.settings import ModelSettings
from fednode.clip.vision import Seen
from fednode.core.types import Array, Tensors
from fednode.data.pixels import Window
from fednode.errors import ModelError
from fednode.learn.features import Features
from fednode.learn.objective import Batch, Objective
from fednode.learn.settings import TuningSettings
from fednode.learn.training import leaves

LOOKED_AT_ONCE: Final = 16
ANY_CLASS: Final = ("thing",)


@dataclass(frozen=True, slots=True)
class Near:
    """A word of the vocabulary, and its Euclidean distance from a learned vector."""

    word: str
    distance: float


class Explainer:
    """Explain the prompts of one policy; the model is loaded once, in float32."""

    def __init__(
        self,
        model: ModelSettings,
        tuning: TuningSettings,
        objective: type[Objective],
        config: Any,
        prompts: Tensors,
        window: Window = None,
    ) -> None:
        """Load the model; raise ModelError if it cannot be loaded.

        window: of grey values, by which images are decoded (data.window).
        """
        frozen = backbone.load(replace(model, precision="float32"))
        self._text, self._vision = _Text(frozen.text), _Vision(frozen.vision)
        towers: Any = {"text": self._text, "vision": self._vision}
        self._model: Backbone = replace(frozen, **towers)
        self._objective = objective(self._model, tuning, config)
        self._files = Features(frozen, window=window)
        self._prompts = leaves(prompts, frozen.device)

    def words(self, top: int) -> dict[str, list[list[Near]]]:
        """Return the `top` nearest words to each vector of each learned context.

        A context has the name of its exchanged array. A context that is computed from the arrays
        (FedTPG) is called "context". Raise ModelError if the prompts have no vectors for the text
        tower.
        """
        with torch.no_grad():
            self._text.contexts.clear()
            self._objective.classifier(self._prompts, ANY_CLASS)
        nearest = {
            self._name(context): self._nearest(context, top) for context in self._text.contexts
        }
        if not nearest:
            raise ModelError(
                "these prompts put no word vectors before the text, or others for each image: none "
                "are near."
            )
        return nearest

    def maps(
        self, images: Sequence[Path], names: Sequence[str], classes: tuple[str, ...]
    ) -> tuple[Array, Array]:
        """Return maps [images, rows, columns] (0..1) without and with the tuned prompts.

        A map is the attention of the class token to the patches in every block, times the gradient
        of the class's logit, negative products set to 0, averaged over heads and summed over
        blocks. Each map is scaled so that its maximum is 1.

        names: the class to look for in each image. Raise ModelError if the image tower is not a
        vision transformer, or if the objective classifies by more than the class token; DataError
        if an image is damaged.
        """
        if self._objective.constant is not None:
            raise ModelError(
                "these prompts classify by more than the class token, whose attention a map shows: "
                "their policy has no maps."
            )
        if not self._model.vision.plain:
            raise ModelError(
                f"{self._model.label} has no vision transformer whose attention could be drawn."
            )
        grid = self._model.vision.grid
        plain: list[Tensor] = []
        tuned: list[Tensor] = []
        wanted = torch.tensor([classes.index(name) for name in names])
        classify = self._objective.classifier(self._prompts, classes)
        for at in range(0, len(images), LOOKED_AT_ONCE):
            pixels = self._pixels(images[at : at + LOOKED_AT_ONCE])
            own = wanted[at : at + LOOKED_AT_ONCE].to(pixels.device)
            with torch.enable_grad():
                with self._vision.watched() as seen:
                    plain_features = self._model.vision.encode(pixels).features
                written = self._objective.zero_shot(plain_features, classes)
                plain.append(_map(written, own, seen, grid))
                with self._vision.watched() as seen:
                    if self._objective.looks:
                        logits = classify(Batch(pixels=pixels))
                    else:
                        encoded = self._model.vision.encode(pixels)
                        norms = encoded.raw.norm(dim=1)
                        logits = classify(Batch(features=encoded.features, norms=norms))
                tuned.append(_map(logits, own, seen, grid))
        return torch.cat(plain).cpu().numpy(), torch.cat(tuned).cpu().numpy()

    def features(self, images: Sequence[Path]) -> tuple[Array, Array | None]:
        """Return unit features [images, D] without and with the tuned prompts.

        The second is None if the prompts do not change image features.
        """
        plain: list[Tensor] = []
        tuned: list[Tensor] = []
        with torch.no_grad():
            classify = self._objective.classifier(self._prompts, ANY_CLASS)
            for at in range(0, len(images), LOOKED_AT_ONCE):
                pixels = self._pixels(images[at : at + LOOKED_AT_ONCE])
                plain.append(self._model.vision.encode(pixels).features)
                if self._objective.looks:
                    classify(Batch(pixels=pixels))
                    tuned.append(self._vision.features)
        before: Array = torch.cat(plain).cpu().numpy()
        return before, torch.cat(tuned).cpu().numpy() if tuned else None

    def _pixels(self, images: Sequence[Path]) -> Tensor:
        return self._files.pixels([(path, 0) for path in images], lambda: False)

    def _name(self, context: Tensor) -> str:
        """Return the array that equals a context or begins with it (PLAN's deep prompts)."""
        for name, prompt in self._prompts.items():
            if prompt.dim() in {2, 3} and prompt.shape[-1] == context.shape[-1]:
                first = prompt if prompt.dim() == 2 else prompt[0]
                if torch.equal(first, context):
                    return name
        return "context"

    def _nearest(self, context: Tensor, top: int) -> list[list[Near]]:
        ids, table = self._model.text.vocabulary()
        seen = self._model.seen
        if seen is not None:
            rows = [row for row, word in enumerate(ids) if word in seen]
            ids, table = [ids[row] for row in rows], table[rows]
        apart = torch.cdist(context.float(), table)
        near = apart.topk(top, largest=False)
        return [
            [
                Near(self._model.text.decode(ids[at]), distance)
                for at, distance in zip(places, distances, strict=True)
            ]
            for places, distances in zip(near.indices.tolist(), near.values.tolist(), strict=True)
        ]


class _Text:
    """A text tower that records the contexts that it encodes."""

    def __init__(self, tower: Any) -> None:
        self._tower = tower
        self.contexts: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tower, name)

    def encode(self, tokens: Any, context: Tensor | None = None, deep: Tensor | None = None) -> Any:
        if context is not None:
            self.contexts += context if context.dim() == 3 else [context]
        return self._tower.encode(tokens, context, deep)


class _Vision:
    """An image tower that keeps the last features, and records its attention inside `watched`."""

    def __init__(self, tower: Any) -> None:
        self._tower = tower
        self._watch: _Attention | None = None
        self.features = torch.empty(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tower, name)

    def encode(self, images: Tensor, prompts: Tensor | None = None) -> Any:
        if self._watch is None:
            seen: Seen = self._tower.encode(images, prompts)
        else:
            with self._watch:
                seen = self._tower.encode(images, prompts)
        self.features = seen.features.detach()
        return seen

    @contextmanager
    def watched(self) -> Iterator[list[Tensor]]:
        """Record the attention of all blocks, each [B, heads, rows, keys], with its gradient."""
        self._watch = _Attention()
        try:
            yield self._watch.found
        finally:
            self._watch = None


class _Attention(TorchFunctionMode):
    """Compute attention step by step, so that its probabilities can be recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Tensor] = []

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        q, k, v = args[:3]
        shares = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(dim=-1)
        if not shares.requires_grad:
            shares.requires_grad_()
        shares.retain_grad()
        self.found.append(shares)
        return shares @ v


def _map(logits: Tensor, wanted: Tensor, seen: Sequence[Tensor], grid: tuple[int, int]) -> Tensor:
    """Return maps [B, rows, columns] from logits [B, classes] and the recorded attention."""
    chosen = logits.gather(1, wanted[:, None]).sum()
    gradients = torch.autograd.grad(chosen, list(seen))
    patches = grid[0] * grid[1]  # patches follow the class token; prompts follow the patches
    total = torch.zeros(len(logits), patches, device=logits.device)
    for share, gradient in zip(seen, gradients, strict=True):
        weighted = (share * gradient)[:, :, 0, 1 : 1 + patches].clamp(min=0)
        total += weighted.mean(dim=1).detach()
    greatest = total.amax(dim=1, keepdim=True)
    total = torch.where(greatest > 0, total / greatest, total)
    return total.view(len(logits), *grid)
