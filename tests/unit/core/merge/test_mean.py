"""Means in float64 and in the order given, names that nobody contributed, and capped weights."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fednode.core.merge.mean import RATIO_MAX, mean, weights_of
from fednode.core.types import Array


def arrays(count: int) -> list[Array]:
    draw = np.random.default_rng(3)
    return [draw.standard_normal((3, 2)).astype(np.float32) for _ in range(count)]


def test_the_mean_is_the_exact_one_rounded_once() -> None:
    given, weights = arrays(5), [3.0, 1.0, 10.0, 7.0, 2.0]
    found = mean(given, weights)
    assert found.dtype == np.float32
    for place in np.ndindex(3, 2):
        exact = sum(
            Fraction(w) * Fraction(float(one[place])) for one, w in zip(given, weights, strict=True)
        ) / Fraction(sum(weights))
        assert found[place] == np.float32(float(exact))


def test_equal_arrays_have_themselves_as_mean() -> None:
    (one,) = arrays(1)
    assert np.array_equal(mean([one, one, one], [1.0, 1.0, 1.0]), one)


@pytest.mark.parametrize(("given", "weights"), [([], []), (arrays(1), [0.0])])
def test_nothing_has_no_mean(given: list[Array], weights: list[float]) -> None:
    with pytest.raises(ValueError, match="have no mean"):
        mean(given, weights)


def test_a_node_that_claims_many_images_weighs_at_most_ten_times_the_median() -> None:
    assert RATIO_MAX == 10.0
    assert weights_of([100, 10**9, 300]) == [100.0, 3000.0, 300.0]
    assert weights_of([100, 2999, 300]) == [100.0, 2999.0, 300.0]
    assert weights_of([1, 10**9]) == [1.0, 10**9 + 0.0]  # the median is half of the larger


def test_no_weight_is_below_one() -> None:
    assert weights_of([0, 0, 70]) == [1.0, 1.0, 10.0]
    assert weights_of([]) == []
