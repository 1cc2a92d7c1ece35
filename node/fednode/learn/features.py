"""What is computed once of each image: features, tokens, pixels and a module's own arrays.

An image has a unit feature and the length that the feature had before (FedCLIP needs the length). A
module that uses the image encoder needs the images' tokens, which the tower computes before the
first prompt (VisionTower.tokens), or the decoded pixels. A module may name an array of its own
(PerImageArray: FedOTP's patches). All of these depend on the image and the frozen model alone.

In memory a value is kept by the file's path, time and size, up to a limit; features are small and
are always kept. `keep_only` gives memory back when the images change. On disk (cache.py) all values
but pixels are kept by (model fingerprint, precision, version, decoder, file content, name). So a
node that restarts, and other nodes of the machine, take them from there.

Every batch has the same size; missing images are filled up. So a value is equal bit for bit,
whatever images were encoded with it, whichever node encoded it, and whether it was kept or not.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.device import to_device
from fednode.clip.model import FrozenClip
from fednode.data.base import ProgressFn, Split, no_progress
from fednode.data.decode import decode, decoder_key
from fednode.data.files import opened
from fednode.data.pixels import Unusable, Window
from fednode.errors import DataError
from fednode.freed import trim
from fednode.learn.cache import FeatureCache
from fednode.learn.learner import Cancelled
from fednode.learn.prompt_module import Batch, PerImageArray, PromptModule

BATCH: Final = 32
WORKERS: Final = 4
ENCODING: Final = "encoding images"
CLASSIFYING: Final = "classifying images"
EVALUATED: Final = 64
"""Images in a batch of an evaluation."""
VERSION: Final = 4
"""Version of the arithmetic. Raise it if features change in any bit, so that no run mixes both."""
PIXELS: Final = PerImageArray("pixels", (), lambda pixels: pixels)


class File(NamedTuple):
    """A file as it was at a moment."""

    path: Path
    time_ns: int
    size: int


class Encoded(NamedTuple):
    """Unit features [n, D], and the lengths [n] that they had before they were made unit."""

    features: Tensor
    norms: Tensor


class Features:
    """Encode images and keep the results."""

    def __init__(
        self,
        backbone: FrozenClip,
        cache: FeatureCache | None = None,
        window: Window = None,
        progress: ProgressFn = no_progress,
    ) -> None:
        """Use a cache of this machine; None keeps everything in memory only.

        window: of grey values, by which images are decoded (data.window). progress: how many images
        are encoded.
        """
        self.progress = progress
        self._backbone = backbone
        self._cache = cache
        self._window = window
        made_by = f"{backbone.fingerprint}/{backbone.precision}/{VERSION}/{decoder_key(window)}"
        self._model = made_by.encode()
        vision = backbone.vision
        tokens = (vision.num_tokens, vision.width) if vision.promptable else ()
        self.tokens = PerImageArray("tokens", tokens, vision.tokens)
        self._features = PerImageArray("feature and length", (-1,), self._encode)
        self._memory: dict[tuple[str, File], Tensor] = {}
        self._digests: dict[File, bytes] = {}
        self._limit = self._filled = 0  # bytes in memory: allowed, used

    @property
    def device(self) -> torch.device:
        """The device that features, tokens and pixels are put on."""
        return self._backbone.device

    @property
    def notes(self) -> tuple[str, ...]:
        """Faults of the cache, as sentences."""
        return tuple(self._cache.notes) if self._cache else ()

    def keep_pixels(self, limit: int) -> None:
        """Keep more than features in memory, up to `limit` bytes."""
        self._limit = max(self._limit, limit)

    def keep_only(self, paths: Collection[Path]) -> None:
        """Free what is in memory of other files, and of earlier content of these files.

        Raise DataError if one of the files can no longer be read.
        """
        current = set(map(_file, paths))
        self._digests = {file: self._digests[file] for file in self._digests if file in current}
        self._memory = {key: value for key, value in self._memory.items() if key[1] in current}
        self._filled = sum(value.nbytes for value in self._memory.values())

    def of(
        self, paths: Sequence[Path], cancelled: Callable[[], bool], work: str = ENCODING
    ) -> Encoded:
        """Return features and lengths, float32, on the model's device, in the order of paths.

        work: what progress calls it.
        """
        if not paths:
            nothing = torch.zeros(0, 0, device=self.device)
            return Encoded(nothing, nothing.sum(dim=1))
        encoded = self.values(self._features, paths, cancelled, work)
        return Encoded(encoded[:, :-1].contiguous(), encoded[:, -1].contiguous())

    def digests(self, paths: Sequence[Path]) -> list[bytes]:
        """Return a digest of each file's content; raise DataError if one can no longer be read."""
        return [self._digest(_file(path)) for path in paths]

    def values(
        self,
        array: PerImageArray,
        paths: Sequence[Path],
        cancelled: Callable[[], bool],
        work: str = ENCODING,
    ) -> Tensor:
        """Return an array's values [n, *shape] on the model's device, in the order of paths.

        They come from memory or from disk, or are computed and kept while there is room. Raise
        DataError if a file was deleted or damaged since it was examined, and Cancelled if
        `cancelled` turns true.
        """
        keys = [(array.name, _file(path)) for path in paths]
        missing = sorted({file for name, file in keys if (name, file) not in self._memory})
        parts = [missing[at : at + BATCH] for at in range(0, len(missing), BATCH)]
        # Nodes that start together take different parts and find each other's results.
        random.Random(os.getpid()).shuffle(parts)
        fresh: dict[tuple[str, File], Tensor] = {}
        progress = self.progress if array is self._features and missing else no_progress
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="decode") as pool:
            done = len(keys) - len(missing)
            for part in parts:
                if cancelled():
                    raise Cancelled
                progress(work, done, len(keys))
                done += len(part)
                for file, value in zip(part, self._values(array, part, pool), strict=True):
                    fresh[array.name, file] = value
                    if array is self._features or self._filled + value.nbytes <= self._limit:
                        self._memory[array.name, file] = value
                        self._filled += value.nbytes
        if array is self._features and missing:
            progress("", 0, 0)
            trim()
        values = [self._memory[key] if key in self._memory else fresh[key] for key in keys]
        return to_device(torch.stack(values), self.device)

    def _values(
        self,
        array: PerImageArray,
        files: Sequence[File],
        pool: ThreadPoolExecutor,
        store: bool = True,
    ) -> list[Tensor]:
        """Return the values of at most BATCH files, from disk or computed.

        store: put computed values on disk.
        """
        if array is PIXELS:
            return list(pool.map(self._decode, files))
        digests = pool.map(self._digest, files)
        end = f"/{array.name}".encode()
        names = [hashlib.sha256(digest + end).digest() for digest in digests]
        disk = self._cache.get(names) if self._cache else {}
        values = {
            name: torch.from_numpy(np.frombuffer(value, "<f4").copy()).view(array.shape)
            for name, value in disk.items()
        }
        todo = {name: at for name, at in zip(names, files, strict=True) if name not in values}
        if todo:
            images = self._images(array, list(todo.values()), pool)
            made = array.of(images).cpu()[: len(todo)].clone().unbind()
            fresh = dict(zip(todo, made, strict=True))
            if self._cache and store:
                arrays = {name: value.numpy().astype("<f4") for name, value in fresh.items()}
                self._cache.put({name: value.tobytes() for name, value in arrays.items()})
            values |= fresh
        return [values[name] for name in names]

    def _images(
        self, array: PerImageArray, files: Sequence[File], pool: ThreadPoolExecutor
    ) -> Tensor:
        """Return the tokens or pixels that an array is computed from, filled up to BATCH."""
        tokens = array is self.tokens
        smaller = self._backbone.vision.tokens_smaller_than_pixels
        source = self.tokens if smaller and not tokens else PIXELS
        images = self._values(source, files, pool, store=False)
        if not (tokens and self._backbone.vision.batch_invariant):
            images += [images[0]] * (BATCH - len(images))
        return torch.stack(images).to(self.device)

    def _encode(self, images: Tensor) -> Tensor:
        """Compute unit features with their lengths behind them [BATCH, D + 1]."""
        raw = self._backbone.encode_raw(images)
        return torch.cat([F.normalize(raw, dim=1), raw.norm(dim=1, keepdim=True)], dim=1)

    def _decode(self, file: File) -> Tensor:
        try:
            with decode(file.path, window=self._window) as decoded:
                return self._backbone.preprocess(decoded.image)
        except Exception as fault:
            # Decoders raise errors of any type on a file that was changed meanwhile.
            reason = " ".join(str(fault).split())[:120]
            raise DataError(f"'{file.path}' can no longer be read: {reason}.") from fault

    def _digest(self, file: File) -> bytes:
        """Return the digest of a file's content and of all that its features depend on."""
        if file not in self._digests:
            try:
                with opened(file.path) as content:
                    found = hashlib.file_digest(content, "sha256").digest()
            except (OSError, Unusable) as fault:
                why = fault.strerror if isinstance(fault, OSError) else fault
                raise DataError(f"'{file.path}' can no longer be read: {why}.") from fault
            self._digests[file] = hashlib.sha256(self._model + found).digest()
        return self._digests[file]


def _file(path: Path) -> File:
    try:
        stat = path.stat()
    except OSError as fault:
        raise DataError(f"'{path}' can no longer be read: {fault.strerror}.") from fault
    return File(path, stat.st_mtime_ns, stat.st_size)


class Images:
    """Give batches of a node's images.

    Features of a split are encoded once. A module with visual prompts gets the images' tokens if
    they are fewer numbers than the pixels; otherwise it gets the pixels.
    """

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
            self._features.progress(CLASSIFYING, at, len(places))
            yield read(places[at : at + EVALUATED])
        self._features.progress("", 0, 0)

    def _encoded(self, split: Split, cancelled: Callable[[], bool]) -> Encoded:
        if split not in self._known:
            paths = [image.path for image in split.images]
            self._known[split] = self._features.of(paths, cancelled)
        return self._known[split]

    def _labels(self, split: Split) -> Tensor:
        return torch.tensor([image.label for image in split.images], device=self._features.device)
