"""Read image files, and find unreadable files before splits are drawn.

A file is examined by decoding it, because nothing else finds a truncated file: about 0.1 ms for an
image of 128 pixels, some 50 ms for a photograph of 12 megapixels. A Memory keeps the results by
path, size and modification time, so a restart decodes only new files.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from PIL import Image, ImageOps, UnidentifiedImageError

SUFFIXES: Final = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
FORMATS: Final = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
PIXELS_MAX: Final = 89_478_485
"""Pillow's own limit against decompression bombs: a quarter GiB of RGB."""

_WORKERS = 4
_REASON_CHARACTERS_MAX = 160


class TooLarge(ValueError):
    """An image has more pixels than PIXELS_MAX; known from its header, before decoding."""


Stamp = tuple[int, int]
"""Size in bytes and modification time in nanoseconds."""


def read_rgb(path: Path, side: int | None = None) -> Image.Image:
    """Decode an image to RGB, upright by its EXIF orientation; of several frames, the first.

    side: decode a JPEG at a reduced size not below side x side, which is faster. Raise TooLarge, or
    Pillow's error if the file is not an image, usually OSError.
    """
    with Image.open(path, formats=FORMATS) as image:
        if image.width * image.height > PIXELS_MAX:
            megapixels = image.width * image.height / 1e6
            raise TooLarge(f"{megapixels:.0f} megapixels; the limit is {PIXELS_MAX / 1e6:.0f}")
        if side is not None:
            image.draft("RGB", (side, side))
        return ImageOps.exif_transpose(image.convert("RGB"))


@dataclass(slots=True)
class Memory:
    """Results of earlier examinations: why a file is unreadable, None for a readable file.

    Its file is a cache: if it is missing, damaged or not writable, files are decoded again.
    """

    file: Path | None = None
    verdicts: dict[str, tuple[Stamp, str | None]] = field(default_factory=dict)

    @classmethod
    def load(cls, file: Path | None) -> Self:
        """Read a memory from its file; a file that cannot be read counts as empty."""
        verdicts: dict[str, tuple[Stamp, str | None]] = {}
        if file is not None:
            try:
                for name, (size, changed_ns, reason) in json.loads(file.read_bytes()).items():
                    if reason is None or isinstance(reason, str):
                        verdicts[name] = ((int(size), int(changed_ns)), reason)
            except (OSError, ValueError, TypeError, AttributeError):
                verdicts = {}
        return cls(file, verdicts)

    def save(self) -> None:
        """Write all results to a temporary file and rename it, so no reader sees half a file."""
        if self.file is None:
            return
        rows = {name: [*stamp, why] for name, (stamp, why) in sorted(self.verdicts.items())}
        aside = self.file.with_name(f"{self.file.name}.{os.getpid()}")
        # A full or read-only disk costs the next start some time, nothing else.
        with contextlib.suppress(OSError):
            aside.write_text(json.dumps(rows), encoding="utf-8")
            aside.replace(self.file)


def examine(paths: Iterable[Path], memory: Memory) -> dict[Path, str | None]:
    """Return for each file why it cannot be used, None if it can.

    The results replace the content of `memory`, which is saved if a file was decoded.
    """
    stamps: dict[Path, Stamp] = {}
    verdicts: dict[Path, str | None] = {}
    unknown: list[Path] = []
    for path in paths:
        try:
            status = path.stat()
        except OSError as error:
            verdicts[path] = f"cannot be read: {error.strerror}"
            continue
        stamps[path] = (status.st_size, status.st_mtime_ns)
        known = memory.verdicts.get(str(path))
        if known is not None and known[0] == stamps[path]:
            verdicts[path] = known[1]
        else:
            unknown.append(path)
    verdicts.update(zip(unknown, _decode_all(unknown), strict=True))
    # Keep only the files of this examination, so that a memory never outgrows its data.
    memory.verdicts = {str(path): (stamp, verdicts[path]) for path, stamp in stamps.items()}
    if unknown:
        memory.save()
    return verdicts


def _decode_all(paths: list[Path]) -> list[str | None]:
    # Pillow warns about unusual metadata and large images; here only errors count.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if len(paths) < 2 * _WORKERS:
            return [_fault(path) for path in paths]
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="examine") as pool:
            return list(pool.map(_fault, paths, chunksize=16))


def _fault(path: Path) -> str | None:
    try:
        if path.stat().st_size == 0:
            return "the file is empty"
        read_rgb(path, side=32)
    except UnidentifiedImageError:
        return "no image of a known format"
    except TooLarge as error:
        return str(error)
    except PermissionError as error:
        return f"cannot be read: {error.strerror}"
    except MemoryError:
        return "too large to decode in memory"
    except Exception as error:
        # Decoders raise errors of any type on damaged bytes; the file is unusable in any case.
        text = " ".join(str(error).split()) or type(error).__name__
        return f"damaged: {text[:_REASON_CHARACTERS_MAX]}"
    return None
