"""Shades of grey by windows and percentiles, and the limit of an image's size."""

from __future__ import annotations

import numpy as np
import pytest

from fednode.data.pixels import (
    PERCENTILES,
    PIXELS_MAX,
    Unusable,
    Values,
    grey,
    percentiles,
    require_room,
    shades,
    spans,
)


def seen(values: Values) -> np.ndarray:
    """Return the shades of an image whose window comes from its percentiles."""
    return grey(lambda: [values], (values.shape[1], values.shape[0]), None)


def test_a_few_bright_points_do_not_vanish() -> None:
    night = np.zeros((100, 100), np.uint16)
    night[50, 50] = 40_000
    assert percentiles(lambda: [night]) == (0.0, 40_000.0)
    assert seen(night)[50, 50] == 255
    assert not seen(np.full((4, 4), 700, np.uint16)).any(), "one value is one shade"
    assert not seen(np.full((4, 4), np.nan)).any()


@pytest.mark.parametrize("kind", ["u1", "u2", ">u2", "i2", "i4", "u4", "i8", "f4", "f8"])
@pytest.mark.parametrize("count", [1, 2, 3, 100, 4999])
def test_percentiles_of_pieces_are_numpys_to_the_last_bit(kind: str, count: int) -> None:
    rng = np.random.default_rng(count)
    for spread in (1.0, 3000.0):
        drawn = rng.normal(40.0, spread, count)
        values = np.clip(drawn, 0, 250).astype(kind) if kind == "u1" else drawn.astype("i4")
        values = np.abs(values).astype(kind) if "u" in kind else drawn.astype(kind)
        parts = np.array_split(values.reshape(-1, 1), 7)
        low, high = (float(one) for one in np.percentile(values, PERCENTILES))
        wanted = (low, high) if low < high else (float(values.min()), float(values.max()))
        assert percentiles(lambda parts=parts: parts) == wanted  # type: ignore[misc]


def test_what_is_not_finite_counts_in_no_percentile() -> None:
    values = np.array([[np.nan, -np.inf, np.inf, 5.0, -0.0, 0.0, -2.0, 7.0]], np.float32)
    known = values[np.isfinite(values)]
    wanted = tuple(float(one) for one in np.percentile(known, PERCENTILES))
    assert percentiles(lambda: [values[:, :3], values[:, 3:]]) == wanted
    assert percentiles(lambda: [values[:, :3]]) == (0.0, 0.0)


def test_pieces_cover_an_image_once() -> None:
    for height, width in ((1, 1), (9459, 9459), (3, 5 << 20), (100_000, 3)):
        found = list(spans(height, width))
        assert [top for top, _ in found] == [0, *(bottom for _, bottom in found[:-1])]
        assert found[-1][1] == height
        assert all(bottom > top for top, bottom in found)


def test_a_window_gives_black_white_and_the_shades_between() -> None:
    values = np.array([[0, 10, 15, 20, 99]], np.uint16)
    assert shades(values, (10.0, 20.0)).tolist() == [[0, 0, 128, 255, 255]]
    assert shades(values, (20.0, 20.0)).tolist() == [[0, 0, 0, 0, 255]]


def test_an_image_that_is_too_large_is_refused_by_its_header() -> None:
    require_room(PIXELS_MAX, 1)
    with pytest.raises(Unusable, match="89 megapixels; the limit is 89"):
        require_room(PIXELS_MAX + 1, 1)
