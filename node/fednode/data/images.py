"""Examine image files before splits are drawn: which are unreadable, or constant.

A file is examined by decoding it, because nothing else finds a truncated file: about 0.1 ms for an
image of 128 pixels, some 50 ms for a photograph of 12 megapixels. A cache keeps the results by
path, size and modification time, so all nodes of a machine together decode each file once.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from PIL import Image, UnidentifiedImageError

from fednode.data.decode import decode, decoder_key
from fednode.data.pixels import Unusable, Window

_WORKERS = 4
_REASON_CHARACTERS_MAX = 160
_SIDE: Final = 32
"""A JPEG is decoded at a reduced size, but not below this."""


class Cache(Protocol):
    """Where results of examinations are kept, by key (node/fednode/learn/cache.py)."""

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the cached values of the keys."""
        ...

    def put(self, items: Mapping[bytes, bytes]) -> None:
        """Insert or replace values."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an examination of a file found.

    fault: why the file cannot be used, None if it can. constant: all pixels have one colour.
    frames: in the file; of a DICOM file with several, the middle one is used.
    """

    fault: str | None = None
    constant: bool = False
    frames: int = 1


def examine(
    paths: Iterable[Path], window: Window = None, cache: Cache | None = None
) -> dict[Path, Verdict]:
    """Return a verdict on each file.

    cache: keeps verdicts until a file changes; None decodes every file.
    """
    keys: dict[Path, bytes] = {}
    decoder = decoder_key(window)
    verdicts: dict[Path, Verdict] = {}
    for path in paths:
        try:
            status = path.stat()
        except OSError as error:
            verdicts[path] = Verdict(f"cannot be read: {error.strerror}")
            continue
        keys[path] = _key(path, status, decoder)
    held = {} if cache is None else cache.get(list(keys.values()))
    for path, key in keys.items():
        if (known := _unpacked(held.get(key, b""))) is not None:
            verdicts[path] = known
    unknown = [path for path in keys if path not in verdicts]
    found = dict(zip(unknown, _look_at_all(unknown, window), strict=True))
    verdicts.update({path: one for path, (one, _) in found.items()})
    if cache is not None:
        # Software that is missing now may be installed before the next start.
        lasting = {path: one for path, (one, keep) in found.items() if keep}
        cache.put({keys[path]: _packed(one) for path, one in lasting.items()})
    return verdicts


def _key(path: Path, status: os.stat_result, decoder: str) -> bytes:
    """Return the key of a verdict; it changes with the file and with the version of the decoder."""
    parts = (decoder, str(path.absolute()), status.st_size, status.st_mtime_ns)
    return hashlib.blake2b(repr(parts).encode(), person=b"examined", digest_size=32).digest()


def _packed(one: Verdict) -> bytes:
    return json.dumps([one.fault, one.constant, one.frames]).encode()


def _unpacked(value: bytes) -> Verdict | None:
    """Return the verdict in a cached value; None if there is none."""
    try:
        fault, constant, frames = json.loads(value)
        if fault is not None and not isinstance(fault, str):
            return None
        return Verdict(fault, bool(constant), int(frames))
    except (ValueError, TypeError):
        return None


def _look_at_all(paths: list[Path], window: Window) -> list[tuple[Verdict, bool]]:
    # Decoders warn about unusual metadata and large images; here only errors count.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if len(paths) < 2 * _WORKERS:
            return [_look_at(path, window) for path in paths]
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="examine") as pool:
            return list(pool.map(_look_at, paths, [window] * len(paths), chunksize=16))


def _look_at(path: Path, window: Window) -> tuple[Verdict, bool]:
    """Return the verdict on a file, and whether it stays true while the file does not change."""
    try:
        if path.stat().st_size == 0:
            return Verdict("the file is empty"), True
        found = decode(path, _SIDE, window)
        constant = _constant(found.image) and _constant(decode(path, None, window).image)
        return Verdict(None, constant, found.frames), True
    except UnidentifiedImageError:
        return Verdict("no image of a known format"), True
    except Unusable as error:
        return Verdict(str(error)), False
    except PermissionError as error:
        return Verdict(f"cannot be read: {error.strerror}"), True
    except MemoryError:
        return Verdict("too large to decode in memory"), True
    except Exception as error:
        # Decoders raise errors of any type on damaged bytes; the file is unusable in any case.
        text = " ".join(str(error).split()) or type(error).__name__
        return Verdict(f"damaged: {text[:_REASON_CHARACTERS_MAX]}"), True


def _constant(image: Image.Image) -> bool:
    """Tell whether all pixels of an RGB image have one colour."""
    return all(low == high for low, high in image.getextrema())  # type: ignore[misc]
