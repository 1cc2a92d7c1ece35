"""Intervals against independent computations: scipy, closed forms and direct resampling."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fednode.evaluation.intervals import (
    Numbers,
    auc_bootstrap,
    balanced_bootstrap,
    pooled,
    ratio_bootstrap,
    wilson,
)


def test_wilson_is_scipy_s() -> None:
    from scipy.stats import binomtest  # takes seconds, which other workers need not wait

    for right, images in ((0, 12), (7, 12), (12, 12), (96, 222), (1, 1)):
        expected = binomtest(right, images).proportion_ci(method="wilson")
        assert wilson(right, images) == pytest.approx((expected.low, expected.high))
    assert all(map(math.isnan, wilson(0, 0)))


def paired(steps: Numbers) -> tuple[float, float]:
    """Return the interval of the mean step of images whose patients are not known."""
    ((low, high),) = ratio_bootstrap(None, steps[:, None], np.ones((len(steps), 1)))
    return float(low), float(high)


def test_the_paired_interval_is_that_of_drawing_images() -> None:
    """The same as drawing 222 images again and again; its width is the one that theory gives."""
    chance = np.random.default_rng(3)
    steps = (chance.random(222) < 0.515).astype(float) - (chance.random(222) < 0.434)
    low, high = paired(steps)
    assert (low, high) == paired(steps)
    drawn = steps[np.random.default_rng(9).integers(222, size=(20_000, 222))].mean(axis=1)
    assert (low, high) == pytest.approx(tuple(np.quantile(drawn, (0.025, 0.975))), abs=2.01 / 222)
    assert high - low == pytest.approx(2 * 1.96 * steps.std() / math.sqrt(222), abs=3 / 222)
    assert (low + high) / 2 == pytest.approx(steps.mean(), abs=1 / 222)
    assert paired(np.zeros(40)) == (0.0, 0.0), "equal answers do not differ"


def pairs_won(above: Numbers, below: Numbers) -> float:
    """Return the AUC by its definition."""
    return float(np.mean([(one > below).mean() + (one == below).mean() / 2 for one in above]))


def all_draws(patients: Any) -> Iterator[Any]:
    """Yield the images of each of the 256 ways to draw four patients."""
    for drawn in itertools.product(range(4), repeat=4):
        yield np.concatenate([np.flatnonzero(patients == one) for one in drawn])


def test_intervals_over_patients_are_those_of_all_draws() -> None:
    draw = np.random.default_rng(5)
    patients = np.array([0, 0, 0, 1, 2, 2, 3, 3, 3, 3])
    right, positive = draw.random(10) < 0.6, draw.random(10) < 0.5
    scores = draw.random(10).round(1)
    shares, areas = [], []
    for rows in all_draws(patients):
        shares.append(right[rows].mean())
        if positive[rows].any() and not positive[rows].all():
            areas.append(pairs_won(scores[rows][positive[rows]], scores[rows][~positive[rows]]))
    ((low, high),) = ratio_bootstrap(patients, right[:, None].astype(float), np.ones((10, 1)))
    assert (low, high) == pytest.approx(tuple(np.quantile(shares, (0.025, 0.975))), abs=0.04)
    area = auc_bootstrap(patients, positive, scores)
    assert area == pytest.approx(tuple(np.quantile(areas, (0.025, 0.975))), abs=0.04)


def test_the_balanced_interval_is_that_of_all_draws_too() -> None:
    draw = np.random.default_rng(8)
    patients, truth = np.array([0, 0, 1, 1, 1, 2, 3, 3, 3, 3]), np.array([0, 1, 0, 0, 2] * 2)
    steps = draw.integers(-1, 2, 10).astype(float)
    means = []
    for rows in all_draws(patients):
        there = [rows[truth[rows] == name] for name in set(truth[rows].tolist())]
        means.append(np.mean([steps[here].mean() for here in there]))
    expected = tuple(np.quantile(means, (0.025, 0.975)))
    assert balanced_bootstrap(patients, truth, steps) == pytest.approx(expected, abs=0.04)
    one_class = balanced_bootstrap(patients, np.zeros(10, np.int64), steps)
    assert one_class == pytest.approx(
        ratio_bootstrap(patients, steps[:, None], np.ones((10, 1)))[0]
    )


def test_the_balanced_interval_of_images_is_that_of_patients_with_one_image() -> None:
    draw = np.random.default_rng(4)
    truth, steps = draw.integers(0, 3, 90), draw.integers(-1, 2, 90).astype(float)
    single = balanced_bootstrap(np.arange(90), truth, steps)
    assert balanced_bootstrap(None, truth, steps) == pytest.approx(single, abs=0.02)


def test_many_images_of_many_classes_take_little_memory() -> None:
    draw = np.random.default_rng(4)
    truth, steps = draw.integers(0, 345, 15_000), draw.integers(-1, 2, 15_000).astype(float)
    tracemalloc.start()
    low, high = balanced_bootstrap(None, truth, steps)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 80 * 2**20
    assert high - low == pytest.approx(2 * 1.96 * steps.std() / math.sqrt(15_000), rel=0.1)


def test_an_interval_over_patients_has_the_width_that_theory_gives() -> None:
    """The ratio estimator's variance over clusters (Cochran, Sampling Techniques, section 6)."""
    draw = np.random.default_rng(2)
    sizes = draw.integers(1, 9, 300)
    patients = np.repeat(np.arange(300), sizes)
    right = draw.random(len(patients)) < draw.beta(2.0, 1.0, 300)[patients]
    ((low, high),) = ratio_bootstrap(
        patients, right[:, None].astype(float), np.ones((len(right), 1))
    )
    sums = np.bincount(patients, right)
    rests = sums - right.mean() * sizes
    width = 2 * 1.96 * math.sqrt(300 / 299 * (rests**2).sum()) / sizes.sum()
    assert high - low == pytest.approx(width, rel=0.08)
    assert width > 1.3 * 2 * 1.96 * math.sqrt(right.mean() * (1 - right.mean()) / len(right))


def test_the_pooled_interval_is_that_of_all_sites_patients() -> None:
    """Three counts a site give the mean, and the width of a bootstrap over all patients."""
    draw = np.random.default_rng(6)
    sites, every, whose = list[tuple[int, int, int]](), [], []
    for patients in (40, 60, 90):
        of = np.repeat(np.arange(patients), draw.integers(1, 6, patients))
        steps = (draw.random(len(of)) < 0.5) * 1 - (draw.random(len(of)) < 0.4)
        sums = np.bincount(of, steps)
        sites.append((len(of), int(sums.sum()), int((sums**2).sum())))
        every.append(steps.astype(float))
        whose.append(of + 1000 * len(sites))
    of_all: Numbers = np.concatenate(every)
    _, patients_of = np.unique(np.concatenate(whose), return_inverse=True)
    mean, (low, high) = pooled(*map(sum, zip(*sites, strict=True)))
    assert mean == pytest.approx(of_all.mean())
    ((least, most),) = ratio_bootstrap(patients_of, of_all[:, None], np.ones((len(of_all), 1)))
    assert (high - low) / (most - least) == pytest.approx(1.0, abs=0.12)
    assert (low + high) / 2 == pytest.approx(mean)


def test_the_auc_of_single_images_is_hanley_and_mcneil_s() -> None:
    """Bamber's exact variance of the AUC of independent images."""
    draw = np.random.default_rng(1)
    positive = np.arange(400) < 150
    scores = draw.normal(size=400) + positive
    low, high = auc_bootstrap(np.arange(400), positive, scores)
    above = scores[positive][:, None] > scores[~positive][None, :]
    area, m, n = above.mean(), 150, 250
    first, second = (above.mean(axis=1) ** 2).mean(), (above.mean(axis=0) ** 2).mean()
    terms = area * (1 - area) + (m - 1) * (second - area**2) + (n - 1) * (first - area**2)
    assert high - low == pytest.approx(2 * 1.96 * math.sqrt(terms / (m * n)), rel=0.08)
    assert (low + high) / 2 == pytest.approx(area, abs=0.01)


def test_without_a_whole_there_is_no_interval() -> None:
    patients = np.array([0, 1])
    (found,) = ratio_bootstrap(patients, np.zeros((2, 1)), np.zeros((2, 1)))
    assert np.isnan(found).all()
    assert all(map(math.isnan, auc_bootstrap(patients, np.array([True, True]), np.ones(2))))
