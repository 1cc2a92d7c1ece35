"""What decoders share: an image, its limits, and the window that makes shades of grey.

Values of more than 8 bits become shades by a window. Without a window, the percentiles PERCENTILES
of the image are its black and white.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

PIXELS_MAX: Final = 89_478_485
"""Pillow's own limit against decompression bombs: a quarter GiB of RGB."""
PERCENTILES: Final = (0.5, 99.5)
"""Of an image without a window: values below the first become black, above the second white."""

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
