"""Batches of a node's images: cached features, or the images if prompts change what the tower sees.

Features of a split are encoded once. An objective with visual prompts gets the images' tokens, that
is, everything that its model computes before the first prompt, if the tokens are fewer numbers than
the pixels; otherwise it gets the pixels. Tokens or pixels are kept in memory up to
`tuning.pixels_mb`. Beyond that limit, tokens come from the machine's cache, and pixels are decoded
again each time. An objective's constants (FedOTP's features of patches) are kept as tokens are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import Tensor

from fednode.clip.placed import placed
from fednode.data.base import Split
from fednode.learn.features import Encoded, Features
from fednode.learn.prompt_module import Batch, PerImageArray
from fednode.learn.settings import TuningSettings

EVALUATED = 64
"""Images in a batch of an evaluation."""
WORK: Final = "classifying images"
Looked = dict[Literal["tokens", "pixels", "constants"], Any]
"""Tokens, pixels or constants, by their field name in Batch."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The images of one epoch; `look` returns tokens, pixels or constants at some places."""

    labels: Tensor
    encoded: Encoded | None
    look: Callable[[Tensor], Looked] | None
    numbers: tuple[int, ...]

    def batch(self, index: Tensor) -> Batch:
        """Return the images at places index [B]."""
        there = placed(index, self.labels.device)
        labels = self.labels[there]
        places = tuple(index.tolist())
        numbers = tuple(self.numbers[place] for place in places)
        looked = self.look(index) if self.look else {}
        batch = Batch(labels=labels, index=index, numbers=numbers, places=places, **looked)
        if self.encoded is None:
            return batch
        features, norms = (array[there] for array in self.encoded)
        return replace(batch, features=features, norms=norms)


class Images:
    """Give batches of a node's images; see the file's header."""

    def __init__(
        self,
        features: Features,
        uses_image_encoder: bool,
        settings: TuningSettings,
        per_image: PerImageArray | None = None,
    ) -> None:
        self._features = features
        self._per_image = per_image
        self._uses_image_encoder = uses_image_encoder
        features.keep_pixels(settings.pixels_mb * 1_000_000)
        # Encoded splits, kept until the images change.
        self._known: dict[Split, Encoded] = {}
        self._digests: dict[Split, list[bytes]] = {}

    def forget(self) -> None:
        """Forget encoded splits, because the images have changed."""
        self._known.clear()
        self._digests.clear()

    def digests(self, split: Split) -> list[bytes]:
        """Return a digest of each image's content, by which it is known again."""
        if split not in self._digests:
            self._digests[split] = self._features.digests([one.path for one in split.images])
        return self._digests[split]

    def features(self, split: Split, cancelled: Callable[[], bool]) -> tuple[Tensor, Tensor]:
        """Return unit features [n, D] of the images, and labels [n]."""
        return self._encoded(split, cancelled).features, self._labels(split)

    def epoch(self, split: Split, cancelled: Callable[[], bool]) -> Epoch:
        """Return the images of an epoch."""
        labels = self._labels(split)

        def look(index: Tensor) -> Looked:
            return self._look([split.images[at].path for at in index], cancelled)

        numbers = tuple(image.label for image in split.images)
        if self._uses_image_encoder:
            return Epoch(labels, None, look, numbers)
        beside = None if self._per_image is None else look
        return Epoch(labels, self._encoded(split, cancelled), beside, numbers)

    def in_order(self, split: Split, cancelled: Callable[[], bool]) -> Iterator[Batch]:
        """Yield the images in batches, in their order."""
        labels = self._labels(split)
        encoded = None if self._uses_image_encoder else self._encoded(split, cancelled)
        if encoded is not None and self._per_image is None:
            yield Batch(features=encoded.features, norms=encoded.norms, labels=labels)
            return
        paths = [image.path for image in split.images]
        for at in range(0, len(paths), EVALUATED):
            self._features.told(WORK, at, len(paths))
            part = slice(at, at + EVALUATED)
            batch = Batch(labels=labels[part], **self._look(paths[part], cancelled))
            if encoded is not None:
                batch = replace(batch, features=encoded.features[part], norms=encoded.norms[part])
            yield batch
        self._features.told("", 0, 0)

    def _look(self, wanted: Sequence[Path], cancelled: Callable[[], bool]) -> Looked:
        if self._per_image is not None:
            return {"constants": self._features.constants(wanted, self._per_image, cancelled)}
        if self._features.compact:
            return {"tokens": self._features.tokens(wanted, cancelled)}
        return {"pixels": self._features.pixels(wanted, cancelled)}

    def _encoded(self, split: Split, cancelled: Callable[[], bool]) -> Encoded:
        if split not in self._known:
            paths = [image.path for image in split.images]
            self._known[split] = self._features.of(paths, cancelled)
        return self._known[split]

    def _labels(self, split: Split) -> Tensor:
        return torch.tensor([image.label for image in split.images], device=self._features.device)
