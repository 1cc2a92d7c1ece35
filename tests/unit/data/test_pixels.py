"""Shades of grey by windows and percentiles, and the limit of an image's size."""

from __future__ import annotations

import numpy as np
import pytest

from fednode.data.pixels import PIXELS_MAX, Unusable, grey, percentiles, require_room


def test_a_few_bright_points_do_not_vanish() -> None:
    night = np.zeros((100, 100), np.uint16)
    night[50, 50] = 40_000
    assert percentiles(night) == (0.0, 40_000.0)
    assert grey(night, None)[50, 50] == 255
    assert not grey(np.full((4, 4), 700, np.uint16), None).any(), "one value is one shade"
    assert not grey(np.full((4, 4), np.nan), None).any()


def test_a_window_gives_black_white_and_the_shades_between() -> None:
    values = np.array([[0, 10, 15, 20, 99]], np.uint16)
    assert grey(values, (10.0, 20.0)).tolist() == [[0, 0, 128, 255, 255]]
    assert grey(values, (20.0, 20.0)).tolist() == [[0, 0, 0, 0, 255]]


def test_an_image_that_is_too_large_is_refused_by_its_header() -> None:
    require_room(PIXELS_MAX, 1)
    with pytest.raises(Unusable, match="89 megapixels; the limit is 89"):
        require_room(PIXELS_MAX + 1, 1)
