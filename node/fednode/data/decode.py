"""Decode an image file of any kind to 8-bit RGB.

    8 bits a channel            as stored; transparent parts become white
    grey with more than 8 bits  a window of its values becomes 0 to 255
    DICOM                       see node/fednode/data/dicom.py

The window is `data.window`. If that is not set, a DICOM file's own window tags give it, and
otherwise percentiles of the image (pixels.py).
"""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import numpy as np
from PIL import Image, ImageOps

from fednode.data import dicom
from fednode.data.budget import ROOM, SHARED, Head, with_head
from fednode.data.files import opened
from fednode.data.heads import WEBP_MAX, is_deep, peak, require_few_chunks
from fednode.data.pixels import Decoded, Unusable, Window, grey, require_room, spans

VERSION: Final = 1
"""Version of the decoder. Raise it if any file's pixels change, so that no cache mixes both."""
DICOM_SUFFIXES: Final = (".dcm", ".dicom", ".ima")
SUFFIXES: Final = (
    ".bmp", *DICOM_SUFFIXES, ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".tif", ".tiff",
    ".webp",
)  # fmt: skip
FORMATS: Final = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")

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


@contextmanager
def decode(path: Path, side: int | None = None, window: Window = None) -> Iterator[Decoded]:
    """Decode a file, upright by its EXIF orientation; its memory is freed behind the block.

    Of several frames take the first, of a DICOM file the middle one.

    side: decode a JPEG at a reduced size not below side x side, which is faster. window: of images
    with more than 8 bits and of DICOM files. Raise Unusable, also for what takes too much memory,
    or the decoder's error if the file is damaged or no image, usually OSError.
    """
    with ExitStack() as held:
        decoded = _found(path, held, side, window)
        held.callback(decoded.image.close)  # before its room is given back
        yield decoded


def _found(path: Path, held: ExitStack, side: int | None, window: Window) -> Decoded:
    """Decode a file; `held` gets what is to be given back."""
    decoded = dicom.decode if path.suffix.lower() in DICOM_SUFFIXES or _has_magic(path) else _decode
    picture = decoded(held.enter_context(opened(path, Head)), held, side, window)
    while picture.image.width * picture.image.height * 4 > ROOM:
        whole = picture.image
        picture = replace(picture, image=whole.reduce(2))
        whole.close()
    return picture


def _decode(file: io.BufferedReader, held: ExitStack, side: int | None, window: Window) -> Decoded:
    """Decode a file that is not DICOM; `held` gets what is to be given back."""
    require_few_chunks(file)
    image = held.enter_context(with_head(file, lambda: _opened(file)))
    full = image.size
    require_room(*full)
    if side is not None:
        image.draft("RGB", (side, side))
    need = peak(image, full)
    shown = f"an image of {image.width:,} x {image.height:,} pixels ({image.format}, {image.mode})"
    least = min(4 * image.width * image.height, ROOM)
    held.enter_context(SHARED.taken(max(need, least), shown))
    inverted = image.format == "TIFF" and image.tag_v2.get(_PHOTOMETRIC) == 0  # type: ignore[attr-defined]
    image.load()
    ImageOps.exif_transpose(image, in_place=True)
    whole = image.size in (full, full[::-1])
    if not is_deep(image.mode):
        return Decoded(_flattened(image), whole=whole)
    shades = grey(lambda: map(np.asarray, _pieces(image)), image.size, window)
    image.close()  # which frees its memory
    # Pillow inverts such files of 8 bits itself.
    np.subtract(255, shades, out=shades, where=inverted)
    return Decoded(Image.fromarray(shades).convert("RGB"), whole=whole)


def _opened(file: io.BufferedReader) -> Image.Image:
    """Read the head of an image file."""
    if file.peek(16)[8:12] == b"WEBP":
        cast("Head", file.raw).limit(WEBP_MAX)
    return Image.open(file, formats=FORMATS)


def _pieces(image: Image.Image) -> Iterator[Image.Image]:
    """Yield an image from above to below, in pieces of few pixels."""
    for top, bottom in spans(image.height, image.width):
        yield image.crop((0, top, image.width, bottom))


def _flattened(image: Image.Image) -> Image.Image:
    """Return an image of at most 8 bits a channel in RGB, on white."""
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    made, top = Image.new("RGB", image.size), 0
    for piece in _pieces(image):
        over = piece.convert("RGBA")
        white = Image.new("RGBA", over.size, "white")
        made.paste(Image.alpha_composite(white, over).convert("RGB"), (0, top))
        top += piece.height
    return made


def _has_magic(path: Path) -> bool:
    try:
        with opened(path) as file:
            return dicom.begins(file.read(dicom.START_BYTES))
    except Unusable:
        return False
    except OSError as fault:  # what is there is examined, and named with the system's reason
        return fault.errno not in {errno.ENOENT, errno.ELOOP}
