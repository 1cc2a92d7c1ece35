"""Decode an image file of any kind to 8-bit RGB.

    8 bits a channel            as stored; transparent parts become white
    grey with more than 8 bits  a window of its values becomes 0 to 255
    DICOM                       see node/fednode/data/dicom.py

The window is `data.window`. If that is not set, a DICOM file's own window tags give it, and
otherwise percentiles of the image (pixels.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, ImageOps

from fednode.data import dicom
from fednode.data.pixels import Decoded, Window, grey, require_room

VERSION: Final = 1
"""Version of the decoder. Raise it if any file's pixels change, so that no cache mixes both."""
DICOM_SUFFIXES: Final = (".dcm", ".dicom")
SUFFIXES: Final = (
    ".bmp", *DICOM_SUFFIXES, ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp",
)  # fmt: skip
FORMATS: Final = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")

_DEEP: Final = ("I", "F")
"""Modes of more than 8 bits, beside those that begin with "I;16"."""
_PREAMBLE_BYTES: Final = 128
_MAGIC: Final = b"DICM"
_PHOTOMETRIC: Final = 262
"""TIFF's tag; its value 0 says that the smallest number is white."""


def is_image(path: Path) -> bool:
    """Tell by its suffix whether a file is an image; without a known one, whether it is DICOM.

    Scanners often name DICOM files by a number or a UID, so such files are opened.
    """
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return True
    return (not suffix or suffix[1:].isdigit()) and _has_magic(path)


def decoder_key(window: Window) -> str:
    """Return what decoded pixels depend on beside the file, as a text for keys of caches."""
    shown = "auto" if window is None else f"{window[0]!r} {window[1]!r}"
    return f"decoder {VERSION}, window {shown}"


def read_rgb(path: Path, side: int | None = None, window: Window = None) -> Image.Image:
    """Return the RGB image of `decode`."""
    return decode(path, side, window).image


def decode(path: Path, side: int | None = None, window: Window = None) -> Decoded:
    """Decode a file; upright by its EXIF orientation.

    Of several frames take the first, of a DICOM file the middle one.

    side: decode a JPEG at a reduced size not below side x side, which is faster. window: of images
    with more than 8 bits and of DICOM files. Raise Unusable, or the decoder's error if the file is
    damaged or no image, usually OSError.
    """
    if path.suffix.lower() in DICOM_SUFFIXES or _has_magic(path):
        return dicom.decode(path, window)
    with Image.open(path, formats=FORMATS) as image:
        require_room(image.width, image.height)
        if side is not None:
            image.draft("RGB", (side, side))
        inverted = image.format == "TIFF" and image.tag_v2.get(_PHOTOMETRIC) == 0  # type: ignore[attr-defined]
        upright = ImageOps.exif_transpose(image)
    if upright.mode not in _DEEP and not upright.mode.startswith("I;16"):
        return Decoded(_flattened(upright))
    shades = grey(np.asarray(upright), window)
    # Pillow inverts such files of 8 bits itself.
    return Decoded(Image.fromarray(255 - shades if inverted else shades).convert("RGB"))


def _flattened(image: Image.Image) -> Image.Image:
    """Return an image of at most 8 bits a channel in RGB, on white."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    over = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", over.size, "white"), over).convert("RGB")


def _has_magic(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(_PREAMBLE_BYTES + len(_MAGIC))[_PREAMBLE_BYTES:] == _MAGIC
    except OSError:
        return False
