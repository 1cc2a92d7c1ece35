"""Read image files, and find those that cannot be read before anything is drawn from them.

A file is examined by decoding it, which is the only way to find a truncated one: about 0.1 ms for
an image of 128 pixels, some 50 ms for a photograph of 12 megapixels. A Memory keeps the verdicts
by path, size and time of change, so that a restart decodes only what is new.
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
"""Size in bytes and time of change in nanoseconds."""


def read_rgb(path: Path, side: int | None = None) -> Image.Image:
    """Decode one image to RGB, upright by its EXIF orientation, the first frame of several.

    side: decode a JPEG at a reduced size not below side x side, which is faster. Raise TooLarge, or
    whatever Pillow raises on a file that is no image, OSError above all.
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
    """Verdicts of earlier examinations; the reason why a file is unreadable, None for a good one.

    Its file is a cache: a missing, damaged or unwritable one costs time and nothing else.
    """

    file: Path | None = None
    verdicts: dict[str, tuple[Stamp, str | None]] = field(default_factory=dict)

    @classmethod
    def load(cls, file: Path | None) -> Self:
        """Read a memory back; an unusable file counts as empty."""
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
        """Write all verdicts, aside and renamed, so that a reader never meets half a file."""
        if self.file is None:
            return
        rows = {name: [*stamp, why] for name, (stamp, why) in sorted(self.verdicts.items())}
        aside = self.file.with_name(f"{self.file.name}.{os.getpid()}")
        # A full or read-only disk only costs the next start some time.
        with contextlib.suppress(OSError):
            aside.write_text(json.dumps(rows), encoding="utf-8")
            aside.replace(self.file)


def examine(paths: Iterable[Path], memory: Memory) -> dict[Path, str | None]:
    """Return for each file why it cannot be used, None where it can; remember the verdicts.

    The memory is left with these files only.
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
    # Only the files of this examination stay remembered, so that a memory never outgrows its data.
    memory.verdicts = {str(path): (stamp, verdicts[path]) for path, stamp in stamps.items()}
    if unknown:
        memory.save()
    return verdicts


def _decode_all(paths: list[Path]) -> list[str | None]:
    # Pillow warns of odd metadata and of large images; here only errors decide.
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
        # Decoders raise anything at all on damaged bytes; whatever it is, the file is unusable.
        text = " ".join(str(error).split()) or type(error).__name__
        return f"damaged: {text[:_REASON_CHARACTERS_MAX]}"
    return None
