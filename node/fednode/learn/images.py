"""Batches of a node's images: cached features, or the images if prompts change what the tower sees.

Features of a split are encoded once. A module with visual prompts gets the images' tokens if they
are fewer numbers than the pixels; otherwise it gets the pixels. Tokens, pixels and a module's own
arrays are kept in memory up to `tuning.pixels_mb` (features.py). Beyond that limit they come from
the machine's cache, and pixels are decoded again each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import torch
from torch import Tensor

from fednode.clip.device import to_device
from fednode.data.base import Split
from fednode.learn.features import PIXELS, Encoded, Features
from fednode.learn.prompt_module import Batch, PerImageArray, PromptModule

EVALUATED = 64
"""Images in a batch of an evaluation."""
WORK: Final = "classifying images"


class Images:
    """Give batches of a node's images; see the file's header."""

    def __init__(self, features: Features, module: PromptModule) -> None:
        """module: what is tuned, which says what it needs of an image."""
        self._features = features
        self._uses_image_encoder = module.uses_image_encoder
        self._arrays: dict[str, PerImageArray] = {}  # by their field in Batch
        if module.per_image is not None:
            self._arrays["per_image"] = module.per_image
        elif module.uses_image_encoder:
            smaller = module.clip.vision.tokens_smaller_than_pixels
            self._arrays["images"] = features.tokens if smaller else PIXELS
        features.keep_pixels(module.settings.pixels_mb * 1_000_000)
        self._known: dict[Split, Encoded] = {}

    def forget(self) -> None:
        """Forget encoded splits, because the images have changed."""
        self._known.clear()

    def digests(self, split: Split) -> list[bytes]:
        """Return a digest of each image's content, by which it is known again."""
        return self._features.digests([image.path for image in split.images])

    def features(self, split: Split, cancelled: Callable[[], bool]) -> tuple[Tensor, Tensor]:
        """Return unit features [n, D] of the images, and labels [n]."""
        return self._encoded(split, cancelled).features, self._labels(split)

    def reader(self, split: Split, cancelled: Callable[[], bool]) -> Callable[[Tensor], Batch]:
        """Return a function that gives the images at places index [B] of a split."""
        device = self._features.device
        labels = self._labels(split)
        encoded = None if self._uses_image_encoder else self._encoded(split, cancelled)

        def read(index: Tensor) -> Batch:
            there, places = to_device(index, device), tuple(index.tolist())
            images = [split.images[place] for place in places]
            paths = [image.path for image in images]
            values = {
                field: self._features.values(array, paths, cancelled)
                for field, array in self._arrays.items()
            }
            if encoded is not None:
                values |= {"image_features": encoded.features[there], "norms": encoded.norms[there]}
            host = tuple(image.label for image in images)
            return Batch(targets=labels[there], labels_host=host, index_host=places, **values)

        return read

    def batches(self, split: Split, cancelled: Callable[[], bool]) -> Iterator[Batch]:
        """Yield the images in batches, in their order; features alone are one batch."""
        read, places = self.reader(split, cancelled), torch.arange(len(split.images))
        if not self._arrays:
            yield read(places)
            return
        for at in range(0, len(places), EVALUATED):
            self._features.progress(WORK, at, len(places))
            yield read(places[at : at + EVALUATED])
        self._features.progress("", 0, 0)

    def _encoded(self, split: Split, cancelled: Callable[[], bool]) -> Encoded:
        if split not in self._known:
            paths = [image.path for image in split.images]
            self._known[split] = self._features.of(paths, cancelled)
        return self._known[split]

    def _labels(self, split: Split) -> Tensor:
        return torch.tensor([image.label for image in split.images], device=self._features.device)
