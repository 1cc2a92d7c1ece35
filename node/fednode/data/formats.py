"""Decode an image file of any kind to 8-bit RGB, in this process.

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
from fednode.data.files import opened
from fednode.data.pixels import (
    Decoded,
    Unusable,
    Window,
    by_rows,
    percentiles,
    require_room,
    sample,
    shades,
)

DICOM_SUFFIXES: Final = (".dcm", ".dicom", ".ima")
SUFFIXES: Final = (
    ".bmp", *DICOM_SUFFIXES, ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".tif", ".tiff",
    ".webp",
)  # fmt: skip
FORMATS: Final = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
PIXELS_KEPT: Final = 16_000_000
"""The largest image that is returned."""
MEMORY: Final = 640 << 20
"""Bytes that decoding may take, beside the process itself."""

_PHOTOMETRIC: Final = 262
"""TIFF's tag; its value 0 says that the smallest number is white."""


def is_image(path: Path) -> bool:
    """Tell by its suffix whether a file is an image; without a known one, whether it is DICOM.

    Scanners often name DICOM files by a number or a UID, so such files are opened.
    """
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return True
    return (not suffix or suffix[1:].isdigit()) and dicom.has_magic(path)


def decode_file(path: Path, side: int | None, window: Window) -> Decoded:
    """Decode any file, whatever memory it takes; see fednode.data.decode.decode."""
    with opened(path) as file:
        start = file.peek(dicom.START_BYTES)[: dicom.START_BYTES]
        if path.suffix.lower() in DICOM_SUFFIXES or dicom.begins(start):
            made, frames, patient = dicom.decode(file, window)
            return Decoded(_rgb(Image.fromarray(made)), frames, patient)
        size = ""
        try:
            with Image.open(file, formats=FORMATS) as image:
                require_room(*image.size)
                size = f" of {image.width:,} x {image.height:,} pixels"
                large = image.width * image.height > PIXELS_KEPT
                return decode_image(image, side, window)
        except Unusable:
            raise
        except Exception as fault:  # some decoders do not say that memory was refused
            memory = isinstance(fault, MemoryError) or "decoder object" in str(fault)
            if not memory and not (size and large):
                raise
            raise Unusable(
                f"too large or damaged: an image{size} cannot be decoded in {MEMORY >> 20} MiB of "
                f"memory ({fault or 'no memory is left'})"
            ) from None


def decode_image(image: Image.Image, side: int | None, window: Window) -> Decoded:
    """Return an opened image in RGB, upright; side: as `decode` takes it."""
    full = image.size
    if side is not None:
        image.draft("RGB", (side, side))
    whole = image.size == full
    inverted = image.format == "TIFF" and image.tag_v2.get(_PHOTOMETRIC) == 0  # type: ignore[attr-defined]
    image.load()
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode not in {"I", "F"} and not image.mode.startswith("I;16"):  # 8 bits a channel
        return Decoded(_rgb(_flattened(image)), whole=whole)
    values = np.asarray(image)
    ends = percentiles(sample(values)) if window is None else window
    made = by_rows(lambda rows: shades(rows, ends), values)
    if inverted:  # Pillow inverts such files of 8 bits itself
        np.subtract(255, made, out=made)
    return Decoded(_rgb(Image.fromarray(made)), whole=whole)


def _flattened(image: Image.Image) -> Image.Image:
    """Return an image of at most 8 bits a channel in L or RGB, on white."""
    if not image.has_transparency_data:
        return image if image.mode in {"L", "RGB"} else image.convert("RGB")
    over = image if image.mode == "RGBA" else image.convert("RGBA")
    white = Image.new("RGB", over.size, "white")
    white.paste(over, mask=over.getchannel("A"))
    return white


def _rgb(image: Image.Image) -> Image.Image:
    """Return an image of at most PIXELS_KEPT in RGB."""
    while image.width * image.height > PIXELS_KEPT:
        image = image.reduce(2)
    return image.convert("RGB")
