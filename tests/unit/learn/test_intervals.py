"""Intervals against independent computations: scipy, closed forms and direct resampling."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from fednode.learn.intervals import paired_bootstrap, wilson


@pytest.mark.parametrize(("right", "images"), [(0, 12), (7, 12), (12, 12), (96, 222), (1, 1)])
def test_wilson_is_scipy_s(right: int, images: int) -> None:
    expected = binomtest(right, images).proportion_ci(method="wilson")
    assert wilson(right, images) == pytest.approx((expected.low, expected.high))
    assert all(map(math.isnan, wilson(0, 0)))


def test_the_paired_interval_is_that_of_drawing_images() -> None:
    """The same as drawing 222 images again and again; its width is the one that theory gives."""
    chance = np.random.default_rng(3)
    ours, others = chance.random(222) < 0.515, chance.random(222) < 0.434
    low, high = paired_bootstrap(ours, others)
    assert (low, high) == paired_bootstrap(ours, others)
    steps = ours.astype(float) - others.astype(float)
    drawn = steps[np.random.default_rng(9).integers(222, size=(20_000, 222))].mean(axis=1)
    assert (low, high) == pytest.approx(tuple(np.quantile(drawn, (0.025, 0.975))), abs=1.01 / 222)
    assert high - low == pytest.approx(2 * 1.96 * steps.std() / math.sqrt(222), abs=2 / 222)
    assert (low + high) / 2 == pytest.approx(steps.mean(), abs=1 / 222)


def test_the_interval_is_paired() -> None:
    """Two prompts that are right on the same images do not differ, however few are right."""
    half = np.arange(40) % 2 == 0
    assert paired_bootstrap(half, half) == (0.0, 0.0)
    low, high = paired_bootstrap(half, ~half)
    assert low < -0.25
    assert high > 0.25
