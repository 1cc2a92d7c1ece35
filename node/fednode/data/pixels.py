"""What decoders share: an image, its limits, and the window that makes shades of grey.

Values of more than 8 bits become shades by a window. Without a window, the percentiles PERCENTILES
of the image are its black and white.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

PIXELS_MAX: Final = 89_478_485
"""Pillow's own limit against decompression bombs: a quarter GiB of RGB."""
PERCENTILES: Final = (0.5, 99.5)
"""Of an image without a window: values below the first become black, above the second white."""
SAMPLE: Final = 1_000_000
"""Pixels of which percentiles are taken; of a larger image, drawn with a fixed seed."""
PIECE: Final = 1 << 20
"""Pixels that are computed with at a time."""

Window = tuple[float, float] | None
"""The values that become black and white; None: by the file's tags or its percentiles."""
Values = npt.NDArray[Any]
Shades = npt.NDArray[np.uint8]


class Unusable(ValueError):
    """A sound file that cannot be used as an image; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """An RGB image, and what its file says of it.

    frames: in the file (more than one: the image is the middle frame of a DICOM file). patient: the
    DICOM tag PatientID; "" if there is none. whole: the image was not reduced.
    """

    image: Image.Image
    frames: int = 1
    patient: str = ""
    whole: bool = True


def require_room(width: int, height: int) -> None:
    """Raise Unusable if an image of this size, known from its header, is too large to decode."""
    if width * height > PIXELS_MAX:
        megapixels = width * height / 1e6
        raise Unusable(f"{megapixels:.0f} megapixels; the limit is {PIXELS_MAX / 1e6:.0f}")


def by_rows(make: Callable[[Values], Shades], values: Values) -> Shades:
    """Apply a function to values [H, W, ...] in pieces of rows, which takes less memory."""
    rows = max(1, PIECE // values.shape[1])
    return np.concatenate([make(values[top : top + rows]) for top in range(0, len(values), rows)])


def shades(values: Values, window: tuple[float, float]) -> Shades:
    """Return values as shades 0 to 255 of a window; not-a-numbers become 0."""
    low, high = window
    if high <= low:
        return np.where(values > high, np.uint8(255), np.uint8(0))
    kind = np.float64 if values.dtype.itemsize > 4 else np.float32
    shares: Values = np.subtract(values, low, dtype=kind) / kind(high - low)
    levels: Shades = np.rint(np.clip(np.nan_to_num(shares, nan=0.0), 0.0, 1.0) * 255).astype(
        np.uint8
    )
    return levels


def sample(values: Values) -> Values:
    """Return the values of an image without a shape; of a large one SAMPLE of them."""
    if values.size <= SAMPLE:
        return values.ravel()
    places = np.random.default_rng(0).integers(values.size, size=SAMPLE)
    return np.asarray(values.reshape(-1)[places])


def percentiles(values: Values) -> tuple[float, float]:
    """Return the percentiles PERCENTILES of finite values; their extremes if both are equal."""
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if not finite.size:
        return 0.0, 0.0
    low, high = np.percentile(finite, PERCENTILES)
    if low == high:
        low, high = finite.min(), finite.max()
    return float(low), float(high)
