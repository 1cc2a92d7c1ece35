"""Explain tuned prompts: the words nearest to them, and the parts of an image that they need.

words   the vocabulary's nearest embeddings to each learned vector (CoOp; Fed-DPT, table 4)
maps    how much a class's logit falls if a part of the image is hidden (Zeiler and Fergus,
        ECCV 2014), without and with tuning
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from fednode.clip.model import FrozenClip
from fednode.clip.text import TextTower
from fednode.clip.timm_vision import tower_of
from fednode.core.types import Array, Tensors
from fednode.data.pixels import Window
from fednode.errors import ModelError
from fednode.learn.features import PIXELS, Features
from fednode.learn.prompt_module import Batch, PromptModule, to_params

GRID: Final = 8
"""Rows and columns of a map: so many places of an image are hidden one after another."""
HIDDEN: Final = 4
"""The side of what is hidden is one part in HIDDEN of the image's side."""
ANY_CLASS: Final = ("thing",)


@dataclass(frozen=True, slots=True)
class Near:
    """A word of the vocabulary, and its Euclidean distance from a learned vector."""

    word: str
    distance: float


class Explainer:
    """Explain the prompts of one policy, in float32."""

    def __init__(
        self,
        frozen: FrozenClip,
        module_of: Callable[[FrozenClip], PromptModule],
        prompts: Tensors,
        window: Window = None,
    ) -> None:
        """Take a model and prompts.

        module_of: what the policy tunes, for a frozen model. window: of grey values, by which
        images are decoded (data.window).
        """
        text = TextTower(frozen.model, frozen.tokenizer, frozen.label, missing=frozen.text.missing)
        vision = tower_of(frozen.model, frozen.label)
        frozen = replace(frozen, text=text, vision=vision, precision="float32")
        self._text = _Text(text)
        recorder: Any = self._text
        self._model: FrozenClip = replace(frozen, text=recorder)
        self._module = module_of(self._model)
        self._files = Features(frozen, window=window)
        self._prompts = to_params(prompts, frozen.device)

    def words(self, top: int) -> dict[str, list[list[Near]]]:
        """Return the `top` nearest words to each vector of each learned context.

        A context has the name of its exchanged array. A context that is computed from the arrays
        (FedTPG) is called "context". Raise ModelError if the prompts have no vectors for the text
        tower.
        """
        with torch.no_grad():
            self._text.contexts.clear()
            self._module.classifier(self._prompts, ANY_CLASS)
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
        """Return maps [images, GRID, GRID] (0..1) without and with the tuned prompts.

        A cell says by how much the class's logit falls if the square around the cell is hidden; a
        rise counts as 0. Each map is scaled so that its maximum is 1.

        names: the class to look for in each image. Raise ModelError if the policy classifies by
        features of patches, DataError if an image is damaged.
        """
        if self._module.per_image is not None:
            raise ModelError(
                "these prompts classify by each patch of an image: their policy has no maps."
            )
        wanted = [classes.index(name) for name in names]
        pixels = self._files.values(PIXELS, images, lambda: False)
        with torch.no_grad():
            classify = self._module.classifier(self._prompts, classes)
            handwritten = self._module.handwritten(classes)

            def logits(pixels: Tensor) -> Tensor:
                encoded = self._model.vision.encode(pixels)
                batch = Batch(image_features=encoded.features, norms=encoded.raw.norm(dim=1))
                if self._module.uses_image_encoder:
                    batch = Batch(images=pixels)
                without = self._module.clip_logits(encoded.features, handwritten)
                return torch.stack([without, classify(batch)])

            without, tuned = _maps(pixels, wanted, logits)
        return without, tuned

    def features(self, images: Sequence[Path]) -> Array:
        """Return the model's unit features [images, D], without prompts."""
        found: Array = self._files.of(images, lambda: False).features.cpu().numpy()
        return found

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
        near = torch.cdist(context.float(), table).topk(top, largest=False)
        pairs = zip(near.indices.tolist(), near.values.tolist(), strict=True)
        decode = self._model.text.decode
        return [
            [Near(decode(ids[at]), apart) for at, apart in zip(*pair, strict=True)]
            for pair in pairs
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


def _maps(pixels: Tensor, wanted: Sequence[int], logits: Callable[[Tensor], Tensor]) -> Array:
    """Return maps [2, B, GRID, GRID] of images [B, 3, rows, columns].

    logits: [2, B, classes], without and with the tuned prompts.
    """
    rows, columns = pixels.shape[-2:]
    images = range(len(wanted))
    whole = logits(pixels)[:, images, wanted]
    falls = torch.zeros(2, len(wanted), GRID, GRID, device=pixels.device)
    for row in range(GRID):
        for column in range(GRID):
            hidden = pixels.clone()
            down, across = _around(row, rows), _around(column, columns)
            hidden[:, :, down, across] = 0.0  # the mean colour, because pixels are normalized
            falls[..., row, column] = whole - logits(hidden)[:, images, wanted]
    found: Array = falls.clamp(min=0).cpu().numpy()
    greatest = found.max(axis=(2, 3), keepdims=True)
    np.divide(found, greatest, out=found, where=greatest > 0)
    return found


def _around(cell: int, length: int) -> slice:
    """Return the pixels that are hidden around a cell, along one side of an image."""
    middle, half = (cell + 0.5) * length / GRID, length / HIDDEN / 2
    return slice(max(0, round(middle - half)), round(middle + half))
