"""Shades of grey by windows and percentiles, and the limit of an image's size."""

from __future__ import annotations

import numpy as np
import pytest

from fednode.data import pixels
from fednode.data.pixels import (
    PERCENTILES,
    PIXELS_MAX,
    Unusable,
    by_rows,
    percentiles,
    require_room,
    sample,
    shades,
)


def test_a_few_bright_points_do_not_vanish() -> None:
    night = np.zeros((100, 100), np.uint16)
    night[50, 50] = 40_000
    assert percentiles(night) == (0.0, 40_000.0)
    dark = np.full((4, 4), 700, np.uint16)
    assert not shades(dark, percentiles(dark)).any(), "one value is one shade"
    nothing = np.full((4, 4), np.nan)
    assert not shades(nothing, percentiles(nothing)).any()


def test_what_is_not_finite_counts_in_no_percentile() -> None:
    values = np.array([np.nan, -np.inf, np.inf, 5.0, -0.0, 0.0, -2.0, 7.0], np.float32)
    wanted = tuple(float(one) for one in np.percentile(values[3:], PERCENTILES))
    assert percentiles(values) == wanted
    assert percentiles(values[:3]) == (0.0, 0.0)


def test_percentiles_of_a_large_image_are_those_of_a_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.random.default_rng(1).normal(size=(500, 400))
    exact = percentiles(sample(values))
    monkeypatch.setattr(pixels, "SAMPLE", 20_000)
    drawn = percentiles(sample(values))
    assert drawn == percentiles(sample(values)) != exact
    assert np.abs(np.subtract(drawn, exact)).max() < 0.1


@pytest.mark.parametrize("shape", [(1, 1), (97, 13), (3, 500), (10, 20, 3)])
def test_rows_in_pieces_make_the_whole(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    values = np.random.default_rng(2).integers(0, 255, shape).astype(np.uint8)
    monkeypatch.setattr(pixels, "PIECE", 100)
    assert np.array_equal(by_rows(lambda rows: 255 - rows, values), 255 - values)


def test_a_window_gives_black_white_and_the_shades_between() -> None:
    values = np.array([[0, 10, 15, 20, 99]], np.uint16)
    assert shades(values, (10.0, 20.0)).tolist() == [[0, 0, 128, 255, 255]]
    assert shades(values, (20.0, 20.0)).tolist() == [[0, 0, 0, 0, 255]]


def test_an_image_that_is_too_large_is_refused_by_its_header() -> None:
    require_room(PIXELS_MAX, 1)
    with pytest.raises(Unusable, match="89 megapixels; the limit is 89"):
        require_room(PIXELS_MAX + 1, 1)
