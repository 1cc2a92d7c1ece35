"""Decode an image file of any kind to 8-bit RGB.

    8 bits a channel            as stored; transparent parts become white
    grey with more than 8 bits  a window of its values becomes 0 to 255
    DICOM                       see node/fednode/data/dicom.py

The window is `data.window`. If that is not set, a DICOM file's own window tags give it, and
otherwise the percentiles PERCENTILES of the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

VERSION: Final = 1
"""Version of the decoder. Raise it if any file's pixels change, so that no cache mixes both."""
DICOM_SUFFIXES: Final = (".dcm", ".dicom")
SUFFIXES: Final = (
    ".bmp", *DICOM_SUFFIXES, ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp",
)  # fmt: skip
FORMATS: Final = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
PIXELS_MAX: Final = 89_478_485
"""Pillow's own limit against decompression bombs: a quarter GiB of RGB."""
PERCENTILES: Final = (0.5, 99.5)
"""Of an image without a window: values below the first become black, above the second white."""

_DEEP: Final = ("I", "F")
"""Modes of more than 8 bits, beside those that begin with "I;16"."""
_PREAMBLE_BYTES: Final = 128
_MAGIC: Final = b"DICM"
_PHOTOMETRIC: Final = 262
"""TIFF's tag; its value 0 says that the smallest number is white."""

Window = tuple[float, float] | None
"""The values that become black and white; None: by the file's tags or its percentiles."""
Values = npt.NDArray[Any]


class Unusable(ValueError):
    """A sound file that cannot be used as an image; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """An RGB image, and the number of frames in its file (more than one: the middle of a DICOM)."""

    image: Image.Image
    frames: int = 1


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
        from fednode.data import dicom  # pydicom is an extra

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


def require_room(width: int, height: int) -> None:
    """Raise Unusable if an image of this size, known from its header, is too large to decode."""
    if width * height > PIXELS_MAX:
        megapixels = width * height / 1e6
        raise Unusable(f"{megapixels:.0f} megapixels; the limit is {PIXELS_MAX / 1e6:.0f}")


def grey(values: Values, window: Window, known: Values | None = None) -> npt.NDArray[np.uint8]:
    """Return values [H, W] as shades 0 to 255; not-a-numbers become 0.

    window: the values of black and white. known: the values that percentiles are taken of, if there
    is no window; None: all of them.
    """
    low, high = percentiles(values if known is None else known) if window is None else window
    if high <= low:
        return np.where(values > high, np.uint8(255), np.uint8(0))
    kind = np.float64 if values.dtype.itemsize > 4 else np.float32
    shares: Values = np.subtract(values, low, dtype=kind) / kind(high - low)
    shades: npt.NDArray[np.uint8] = np.rint(
        np.clip(np.nan_to_num(shares, nan=0.0), 0.0, 1.0) * 255
    ).astype(np.uint8)
    return shades


def percentiles(values: Values) -> tuple[float, float]:
    """Return the percentiles PERCENTILES of finite values; their extremes if both are equal."""
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values.ravel()
    if not finite.size:
        return 0.0, 0.0
    low, high = (float(one) for one in np.percentile(finite, PERCENTILES))
    return (low, high) if low < high else (float(finite.min()), float(finite.max()))


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
