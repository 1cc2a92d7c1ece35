"""Image features, encoded once: while no visual prompt is tuned, they never change.

An image has a unit feature and the length that the feature had before (FedCLIP needs the length).
A feature's key is (model fingerprint, precision, version, decoder, file content). So a node that
restarts, and other nodes of the machine, take features from the cache. Every batch has the same
size; missing images are filled up. So an image's features are equal bit for bit, whatever images
were encoded with it and whichever node encoded it.

A policy with visual prompts needs more than features. It gets the images' tokens, which the tower
computes before the first prompt (VisionTower.tokens), or the decoded pixels. Tokens never change
either and are kept in the same cache, in float32, as the model computes them. Cached and computed
tokens are equal bit for bit. The same holds for an objective's constants (FedOTP's patches).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.clip.backbone import Backbone
from fednode.clip.placed import placed
from fednode.data.base import Told, silent
from fednode.data.decode import decode, decoder_key
from fednode.data.files import opened
from fednode.data.pixels import Unusable, Window
from fednode.errors import DataError
from fednode.freed import trim
from fednode.learn.cache import FeatureCache
from fednode.learn.learner import Cancelled
from fednode.learn.prompt_module import PerImageArray

BATCH: Final = 32
WORKERS: Final = 4
WORK: Final = "encoding images"
VERSION: Final = 3
"""Version of the arithmetic. Raise it if features change in any bit, so that no run mixes both."""


Decoded = tuple[Path, int, int]
"""Key of a decoded image: the file, its time and its size."""


class Encoded(NamedTuple):
    """Unit features [n, D], and the lengths [n] that they had before they were made unit."""

    features: Tensor
    norms: Tensor


class Kept(NamedTuple):
    """A result that is computed once for each image and kept in the cache.

    name: ends the keys in the cache. shape: of one image's value. compute: returns the values of at
    most BATCH images, by digest, and filler behind them.
    """

    name: str
    shape: tuple[int, ...]
    compute: Callable[[Mapping[bytes, Path], ThreadPoolExecutor], Tensor]

    def entry(self, digest: bytes) -> bytes:
        """Return the cache's key of an image."""
        return hashlib.sha256(digest + f"/{self.name}".encode()).digest()


class Features:
    """Encode images and keep the results."""

    def __init__(
        self,
        backbone: Backbone,
        cache: FeatureCache | None = None,
        window: Window = None,
        told: Told = silent,
    ) -> None:
        """Use a cache of this machine; None keeps everything in memory only.

        window: of grey values, by which images are decoded (data.window). told: how many images are
        encoded.
        """
        self.told = told
        self._backbone = backbone
        self._cache = cache
        self._window = window
        made_by = f"{backbone.fingerprint}/{backbone.precision}/{VERSION}/{decoder_key(window)}"
        self._model = made_by.encode()
        vision = backbone.vision
        tokens = (vision.length, vision.width) if vision.promptable else ()
        self._kept_features = Kept("feature and length", (-1,), self._make_features)
        self._kept_tokens = Kept("tokens", tokens, self._make_tokens)
        self._known: dict[bytes, Tensor] = {}
        self._sources: dict[Path, bytes] = {}  # digests of the files that are known
        self._in_memory: dict[str, dict[Decoded, Tensor]] = {}  # by what they are
        self._limit = self._filled = 0  # bytes of pixels and tokens: allowed, used

    @property
    def device(self) -> torch.device:
        """The device that features, tokens and pixels are put on."""
        return self._backbone.device

    @property
    def compact(self) -> bool:
        """Tell whether the tokens of an image are fewer numbers than its pixels."""
        return self._backbone.vision.compact

    def keep_pixels(self, limit: int) -> None:
        """Keep decoded images or their tokens in memory, up to `limit` bytes."""
        self._limit = max(self._limit, limit)

    def keep_only(self, paths: Collection[Path]) -> None:
        """Free what is in memory of other files, and of earlier content of these files."""
        self._sources = {path: digest for path, digest in self._sources.items() if path in paths}
        self._forget_unused()
        for kept in self._in_memory.values():
            for key in [key for key in kept if key[0] not in paths or not _current(key)]:
                value = kept.pop(key)
                self._filled -= value.numel() * value.element_size()

    def _forget_unused(self) -> None:
        used = set(self._sources.values())
        self._known = {digest: value for digest, value in self._known.items() if digest in used}

    @property
    def notes(self) -> tuple[str, ...]:
        """Faults of the cache, as sentences."""
        return tuple(self._cache.notes) if self._cache else ()

    def of(self, paths: Sequence[Path], cancelled: Callable[[], bool]) -> Encoded:
        """Return features and lengths, float32, on the model's device, in the order of paths.

        Raise DataError if a file was deleted or damaged since it was examined, Cancelled if
        `cancelled` turns true.
        """
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="decode") as pool:
            digests = list(pool.map(self._digest, paths))
            sources = dict(zip(digests, paths, strict=True))
            unknown = [digest for digest in sources if digest not in self._known]
            self._known |= self._cached(self._kept_features, unknown)
            todo = [digest for digest in unknown if digest not in self._known]
            # Nodes that start together begin at different places and find each other's results.
            begin = os.getpid() * 7919 % len(todo) if todo else 0
            order = [*todo[begin:], *todo[:begin]]
            for at in range(0, len(order), BATCH):
                if cancelled():
                    raise Cancelled
                self.told(WORK, len(sources) - len(order) + at, len(sources))
                part = {digest: sources[digest] for digest in order[at : at + BATCH]}
                self._known |= self._values(self._kept_features, part, pool)
        current = {path: digest for digest, path in sources.items()}
        replaced = any(
            self._sources.get(path, digest) != digest for path, digest in current.items()
        )
        self._sources |= current
        if replaced:
            self._forget_unused()
        if order:
            self.told("", 0, 0)
            trim()
        if not digests:
            nothing = torch.zeros(0, 0, device=self._backbone.device)
            return Encoded(nothing, nothing.sum(dim=1))
        encoded = torch.stack([self._known[digest] for digest in digests]).to(self._backbone.device)
        return Encoded(encoded[:, :-1].contiguous(), encoded[:, -1].contiguous())

    def digests(self, paths: Sequence[Path]) -> list[bytes]:
        """Return a digest of each file's content; raise DataError if one can no longer be read."""
        return [self._digest(path) for path in paths]

    def pixels(self, wanted: Sequence[Path], cancelled: Callable[[], bool]) -> Tensor:
        """Return preprocessed images [n, 3, H, W] on the model's device.

        Raise DataError if a file was deleted or damaged since it was examined, Cancelled if
        `cancelled` turns true.
        """

        def decoded(missing: list[Decoded], pool: ThreadPoolExecutor) -> dict[Decoded, Tensor]:
            images = pool.map(lambda key: self._decode(key[0]), missing)
            return dict(zip(missing, images, strict=True))

        return self._gathered("pixels", wanted, decoded, cancelled)

    def tokens(self, wanted: Sequence[Path], cancelled: Callable[[], bool]) -> Tensor:
        """Return tokens [n, length, width] on the model's device.

        Raise DataError if a file was deleted or damaged since it was examined, Cancelled if
        `cancelled` turns true.
        """
        return self._gathered(
            "tokens", wanted, partial(self._of_keys, self._kept_tokens), cancelled
        )

    def constants(
        self, wanted: Sequence[Path], of: PerImageArray, cancelled: Callable[[], bool]
    ) -> Tensor:
        """Return an objective's constants [n, *shape] on the model's device.

        Raise DataError if a file was deleted or damaged since it was examined, Cancelled if
        `cancelled` turns true.
        """

        def compute(sources: Mapping[bytes, Path], pool: ThreadPoolExecutor) -> Tensor:
            return of.of(torch.stack(self._shown(sources, pool)).to(self._backbone.device))

        kept = Kept(of.name, of.shape, compute)
        return self._gathered(of.name, wanted, partial(self._of_keys, kept), cancelled)

    def _gathered(
        self,
        name: str,
        wanted: Sequence[Path],
        find: Callable[[list[Decoded], ThreadPoolExecutor], dict[Decoded, Tensor]],
        cancelled: Callable[[], bool],
    ) -> Tensor:
        """Stack tensors in memory and those that `find` returns; keep new ones while there is room.

        name: what they are.
        """
        kept = self._in_memory.setdefault(name, {})
        keys = [_decoded(path) for path in wanted]
        missing = sorted({key for key in keys if key not in kept})
        fresh: dict[Decoded, Tensor] = {}
        if missing:
            with ThreadPoolExecutor(WORKERS, thread_name_prefix="decode") as pool:
                for at in range(0, len(missing), BATCH):
                    if cancelled():
                        raise Cancelled
                    fresh.update(find(missing[at : at + BATCH], pool))
        for key, value in fresh.items():
            size = value.numel() * value.element_size()
            if self._filled + size <= self._limit:
                self._filled += size
                kept[key] = value
        values = [kept[key] if key in kept else fresh[key] for key in keys]
        return placed(torch.stack(values), self._backbone.device)

    def _of_keys(
        self, kept: Kept, missing: Sequence[Decoded], pool: ThreadPoolExecutor
    ) -> dict[Decoded, Tensor]:
        """Return the values of at most BATCH images, from the cache or computed."""
        paths = [key[0] for key in missing]
        digests = list(pool.map(self._digest, paths))
        sources = dict(zip(digests, paths, strict=True))
        values = self._values(kept, sources, pool)
        return {key: values[digest] for key, digest in zip(missing, digests, strict=True)}

    def _values(
        self,
        kept: Kept,
        sources: Mapping[bytes, Path],
        pool: ThreadPoolExecutor,
        store: bool = True,
    ) -> dict[bytes, Tensor]:
        """Return the values of at most BATCH images by digest, from the cache or computed.

        store: put computed values into the cache.
        """
        values = self._cached(kept, sources)
        todo = {digest: path for digest, path in sources.items() if digest not in values}
        if todo:
            made = kept.compute(todo, pool).cpu()[: len(todo)].clone().unbind()
            fresh = dict(zip(todo, made, strict=True))
            if self._cache and store:
                self._cache.put(
                    {kept.entry(digest): _bytes(value) for digest, value in fresh.items()}
                )
            values |= fresh
        return values

    def _cached(self, kept: Kept, digests: Iterable[bytes]) -> dict[bytes, Tensor]:
        """Return the values in the cache, by digest."""
        names = {kept.entry(digest): digest for digest in digests}
        held = self._cache.get(list(names)) if self._cache and names else {}
        return {names[name]: _floats(value).view(kept.shape) for name, value in held.items()}

    def _make_features(self, sources: Mapping[bytes, Path], pool: ThreadPoolExecutor) -> Tensor:
        """Compute unit features with their lengths behind them [BATCH, D + 1]."""
        raw = self._backbone.encode_raw(torch.stack(self._shown(sources, pool)))
        norms = raw.norm(dim=1, keepdim=True)
        return torch.cat([F.normalize(raw, dim=1), norms], dim=1)

    def _make_tokens(self, sources: Mapping[bytes, Path], pool: ThreadPoolExecutor) -> Tensor:
        """Compute tokens [n, length, width]."""
        vision = self._backbone.vision
        pixels = list(pool.map(self._decode, sources.values()))
        if not vision.steady:
            pixels += [pixels[0]] * (BATCH - len(pixels))
        return vision.tokens(torch.stack(pixels).to(self._backbone.device))

    def _shown(self, sources: Mapping[bytes, Path], pool: ThreadPoolExecutor) -> list[Tensor]:
        """Return BATCH tokens or decoded images: of the files, by digest, and filler."""
        if self.compact:
            tokens = self._values(self._kept_tokens, sources, pool, store=False)
            images = [tokens[digest] for digest in sources]
        else:
            images = list(pool.map(self._decode, sources.values()))
        return images + [images[0]] * (BATCH - len(images))

    def _decode(self, path: Path) -> Tensor:
        try:
            with decode(path, window=self._window) as decoded:
                return self._backbone.preprocess(decoded.image)
        except Exception as fault:
            # Decoders raise errors of any type on a file that was changed meanwhile.
            reason = " ".join(str(fault).split())[:120]
            raise DataError(f"'{path}' can no longer be read: {reason}.") from fault

    def _digest(self, path: Path) -> bytes:
        try:
            with opened(path) as file:
                content = hashlib.file_digest(file, "sha256").digest()
        except (OSError, Unusable) as fault:
            why = fault.strerror if isinstance(fault, OSError) else fault
            raise DataError(f"'{path}' can no longer be read: {why}.") from fault
        return hashlib.sha256(self._model + content).digest()


def _floats(value: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(value, dtype="<f4").copy())


def _bytes(value: Tensor) -> bytes:
    return value.numpy().astype("<f4").tobytes()


def _decoded(path: Path) -> Decoded:
    try:
        stat = path.stat()
    except OSError as fault:
        raise DataError(f"'{path}' can no longer be read: {fault.strerror}.") from fault
    return path, stat.st_mtime_ns, stat.st_size


def _current(key: Decoded) -> bool:
    """Tell whether a file is still the one that was decoded."""
    try:
        return _decoded(key[0]) == key
    except DataError:
        return False
