"""What decoding an image will take, by the head of its file."""

from __future__ import annotations

import io
import os
import struct
from typing import Any, Final

from PIL import Image

from fednode.data.budget import HEADS, TooMuch

PNG: Final = b"\x89PNG\r\n\x1a\n"
WEBP_MAX: Final = 64 << 20
"""Bytes of a WebP file: its decoder takes a file as a whole."""
CHUNKS_MAX: Final = 500_000
PACKED: Final = frozenset({b"zTXt", b"iTXt", b"iCCP"})
PACKED_BYTES: Final = 1 << 20
"""What Pillow unpacks of such a chunk at most."""
DEEP: Final = ("I", "F")
"""Modes of more than 8 bits, beside those that begin with "I;16"."""
KEPT: Final = ("GIF", "WEBP")
"""Formats whose decoders keep what they took until the image is closed."""
ORIENTATION: Final = 0x0112
_ROWS, _TILE_WIDTH, _TILE_LENGTH, _BITS, _SAMPLES = 278, 322, 323, 258, 277
"""TIFF's tags."""


def is_deep(mode: str) -> bool:
    """Tell whether a mode has more than 8 bits a channel."""
    return mode in DEEP or mode.startswith("I;16")


def pixel_bytes(mode: str) -> int:
    """Return the bytes that Pillow keeps for a pixel."""
    return 1 if mode in {"1", "L", "P"} else 2 if mode.startswith("I;16") else 4


def require_few_chunks(file: io.BufferedReader) -> None:
    """Raise TooMuch if a PNG holds much beside its pixels, before or behind them.

    Pillow keeps all other chunks. A file that is not a PNG passes; the file is left at its begin.
    """
    if file.read(len(PNG)) == PNG:
        beside = 0
        for _ in range(CHUNKS_MAX):
            start = file.read(8)
            if len(start) < 8 or not start[4:].isalpha() or start[4:] == b"IEND":
                break
            length, name = struct.unpack(">I4s", start)
            if name not in {b"IDAT", b"fdAT"}:
                beside += length + (PACKED_BYTES if name in PACKED else 0)
            if beside > HEADS[-1]:
                raise TooMuch(f"too large: its tags and texts have over {HEADS[-1] >> 20} MiB")
            file.seek(length + 4, os.SEEK_CUR)
        else:
            raise TooMuch(f"too large: it has more than {CHUNKS_MAX:,} chunks")
    file.seek(0)


def turned(image: Image.Image) -> bool:
    """Tell whether the tags of an image turn it.

    Reading all tags of a PNG decodes it, so here its texts may turn it.
    """
    if image.format == "PNG" and "exif" not in image.info:
        return any(str(key).startswith(("Raw profile", "XML")) for key in image.info)
    return bool(image.getexif().get(ORIENTATION, 1) != 1)


def peak(image: Image.Image, full: tuple[int, int]) -> int:
    """Return the most bytes that decoding an image to RGB holds at a time.

    full: width and height in the file, before a JPEG's reduction.
    """
    pixels, held = image.width * image.height, pixel_bytes(image.mode)
    beside = _beside(image, full)
    loaded = pixels * held + beside
    if is_deep(image.mode):
        made = pixels * max(held + 1, 5)
    elif image.mode == "RGB" and not image.has_transparency_data:
        made = pixels * held
    else:
        made = pixels * (held + 4)
    if image.format in KEPT:
        made += beside
    return max(loaded, made, 2 * held * pixels if turned(image) else 0)


def _beside(image: Any, full: tuple[int, int]) -> int:
    """Return the bytes that a decoder takes beside the image that it fills."""
    pixels: int = image.width * image.height
    match image.format:
        case "JPEG" if _in_scans(image):
            most = max(h for _, h, _, _ in image.layer) * max(v for _, _, v, _ in image.layer)
            shares = sum(h * v for _, h, v, _ in image.layer) / most
            return int(2 * full[0] * full[1] * shares)  # all coefficients, of two bytes each
        case "TIFF":
            return _strip(image)
        case "WEBP":
            return 12 * pixels + _size(image)
        case "GIF":
            return 2 * pixels
        case "BMP":
            return pixels
    return 0


def _in_scans(image: Any) -> bool:
    """Tell whether a JPEG holds an image in several scans, so that all of it is kept."""
    if image.info.get("progressive"):
        return True
    at = image.fp.tell()  # behind the marker of the first scan
    start = image.fp.read(3)
    image.fp.seek(at)
    return len(start) < 3 or start[2] < len(image.layer)


def _strip(image: Any) -> int:
    """Return the bytes of a TIFF's strip or tile, unpacked, and of the file, which is mapped."""
    if not image.tile or image.tile[0][0] != "libtiff":
        return 0
    tags = image.tag_v2
    bits = tags.get(_BITS) or (1,)
    depth = max(bits if isinstance(bits, tuple) else (bits,)) * (tags.get(_SAMPLES) or 1)
    wide = max(image.width, tags.get(_TILE_WIDTH) or 0)
    rows = tags.get(_TILE_LENGTH) or min(tags.get(_ROWS) or image.height, image.height)
    return int(wide * rows * depth // 8) + _size(image)


def _size(image: Any) -> int:
    return os.fstat(image.fp.fileno()).st_size
