"""What decoders share: an image, its limits, and the window that makes shades of grey.

Values of more than 8 bits become shades by a window. Without a window, the percentiles PERCENTILES
of the image are its black and white.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
Pieces = Callable[[], Iterable[Values]]
"""Gives the rows of an image, from above to below, as often as it is called."""
PIECE: Final = 1 << 20
"""Pixels that are computed with at a time."""


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


def spans(height: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield the first row and the row behind the last of pieces of some PIECE pixels."""
    rows = max(1, PIECE // max(width, 1))
    for top in range(0, height, rows):
        yield top, min(top + rows, height)


def grey(
    pieces: Pieces, size: tuple[int, int], window: Window, known: Pieces | None = None
) -> npt.NDArray[np.uint8]:
    """Return values as shades 0 to 255 [H, W]; not-a-numbers become 0.

    pieces: gives the values of rows, from above to below. size: width and height. window: the
    values of black and white. known: the values that percentiles are taken of, if there is no
    window; None: all of them.
    """
    ends = percentiles(pieces if known is None else known) if window is None else window
    made, top = np.empty((size[1], size[0]), np.uint8), 0
    for values in pieces():
        made[top : top + len(values)] = shades(values, ends)
        top += len(values)
    return made


def shades(values: Values, window: tuple[float, float]) -> npt.NDArray[np.uint8]:
    """Return values [H, W] as shades 0 to 255 of a window; not-a-numbers become 0."""
    low, high = window
    if high <= low:
        return np.where(values > high, np.uint8(255), np.uint8(0))
    kind = np.float64 if values.dtype.itemsize > 4 else np.float32
    shares: Values = np.subtract(values, low, dtype=kind) / kind(high - low)
    levels: npt.NDArray[np.uint8] = np.rint(
        np.clip(np.nan_to_num(shares, nan=0.0), 0.0, 1.0) * 255
    ).astype(np.uint8)
    return levels


def percentiles(pieces: Pieces) -> tuple[float, float]:
    """Return the percentiles PERCENTILES of finite values; their extremes if both are equal.

    They equal numpy's of all values, and take the memory of one piece.
    """
    count = sum(finite(values).size for values in pieces())
    if not count:
        return 0.0, 0.0
    places = [share / 100 * (count - 1) for share in PERCENTILES]
    ranks = [int(place) for place in places]
    ends = ranked(pieces, [*ranks, *(min(rank + 1, count - 1) for rank in ranks)])
    low, high = (
        float(between(ends[at], ends[at + len(ranks)], np.float64(place - ranks[at])))
        for at, place in enumerate(places)
    )
    if low < high:
        return low, high
    least, most = ranked(pieces, [0, count - 1])
    return float(least), float(most)


def between(low: Any, high: Any, share: np.float64) -> Any:
    """Return the value at a share of the way between two, rounded as numpy rounds it."""
    way = np.subtract(high, low)
    return high - way * (1 - share) if share >= 0.5 else low + way * share


def finite(values: Values) -> Values:
    """Return the finite values of an array, without a shape."""
    if values.dtype.kind == "f":
        return np.asarray(values[np.isfinite(values)])
    return values.ravel()


def ranked(pieces: Pieces, ranks: Sequence[int]) -> list[Any]:
    """Return the finite values that have the given places in their order, which count from 0.

    Each pass over the pieces counts the values by 16 further bits.
    """
    places = [(0, rank) for rank in ranks]  # the leading bits of the value, its rank among such
    kind = next(iter(pieces())).dtype.newbyteorder("=")
    bits = 8 * kind.itemsize
    step = min(bits, 16)
    for shift in range(bits - step, -1, -step):
        counts = {leading: np.zeros(1 << step, np.int64) for leading, _ in places}
        for values in pieces():
            keys = _keys(finite(values).astype(kind, copy=False))
            for leading, held in counts.items():
                part = keys if shift + step == bits else keys[keys >> (shift + step) == leading]
                low = (part >> shift & ((1 << step) - 1)).astype(np.int64)
                held += np.bincount(low, minlength=1 << step)
        places = [_narrowed(leading, rank, counts[leading], step) for leading, rank in places]
    return [_unkeyed(key, kind) for key, _ in places]


def _narrowed(leading: int, rank: int, held: Values, step: int) -> tuple[int, int]:
    ends = np.cumsum(held)
    at = int(np.searchsorted(ends, rank, side="right"))
    return leading << step | at, rank - int(ends[at] - held[at])


def _keys(values: Values) -> Values:
    """Return unsigned numbers in the order of the values."""
    kind = np.dtype(f"u{values.dtype.itemsize}")
    top = kind.type(1 << 8 * kind.itemsize - 1)
    keys = values.view(kind)
    if values.dtype.kind == "f":
        return np.where(keys & top, ~keys, keys | top)
    return keys ^ top if values.dtype.kind == "i" else keys


def _unkeyed(key: int, kind: np.dtype[Any]) -> Any:
    """Return the value of a key."""
    top, all_ = 1 << 8 * kind.itemsize - 1, (1 << 8 * kind.itemsize) - 1
    if kind.kind == "f":
        key = key ^ top if key & top else key ^ all_
    elif kind.kind == "i":
        key ^= top
    return np.array([key], f"u{kind.itemsize}").view(kind)[0]
