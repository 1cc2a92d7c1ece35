"""Decode an image file of any kind to 8-bit RGB, in this process.

    8 bits a channel            as stored; transparent parts become white
    grey with more than 8 bits  a window of its values becomes 0 to 255
    DICOM                       see node/fednode/data/dicom.py

The window is `data.window`. If that is not set, a DICOM file's own window tags give it, and
otherwise percentiles of the image (pixels.py).
"""

from __future__ import annotations

import io
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
            return Decoded(_reduced(Image.fromarray(made)).convert("RGB"), frames, patient)
        with _open_image(file) as image:
            require_room(*image.size)
            large = image.width * image.height > PIXELS_KEPT
            shown = (
                f"an image of {image.width:,} x {image.height:,} pixels ({image.format}, "
                f"{image.mode}) cannot be decoded in {MEMORY >> 20} MiB of memory"
            )
            try:
                return decode_image(image, side, window)
            except MemoryError:
                raise Unusable(f"too large: {shown}") from None
            except Exception as fault:  # some decoders do not say that memory was refused
                if large:
                    raise Unusable(f"too large or damaged: {shown} ({fault})") from None
                raise


def _open_image(file: io.BufferedReader) -> Image.Image:
    try:
        return Image.open(file, formats=FORMATS)
    except OSError as fault:
        if "decoder object" not in str(fault):
            raise
        raise Unusable(
            f"a WebP image that is damaged, or too large to decode in {MEMORY >> 20} MiB of memory"
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
    if not is_deep(image.mode):
        return Decoded(_reduced(_flattened(image)).convert("RGB"), whole=whole)
    values = np.asarray(image)
    ends = percentiles(sample(values)) if window is None else window
    made = by_rows(lambda rows: shades(rows, ends), values)
    if inverted:  # Pillow inverts such files of 8 bits itself
        np.subtract(255, made, out=made)
    return Decoded(_reduced(Image.fromarray(made)).convert("RGB"), whole=whole)


def _flattened(image: Image.Image) -> Image.Image:
    """Return an image of at most 8 bits a channel in L or RGB, on white."""
    if not image.has_transparency_data:
        return image if image.mode in {"L", "RGB"} else image.convert("RGB")
    over = image if image.mode == "RGBA" else image.convert("RGBA")
    white = Image.new("RGB", over.size, "white")
    white.paste(over, mask=over.getchannel("A"))
    return white


def _reduced(image: Image.Image) -> Image.Image:
    """Return an image of at most PIXELS_KEPT."""
    while image.width * image.height > PIXELS_KEPT:
        image = image.reduce(2)
    return image


def is_deep(mode: str) -> bool:
    """Tell whether a mode has more than 8 bits a channel."""
    return mode in {"I", "F"} or mode.startswith("I;16")
