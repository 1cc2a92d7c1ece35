"""Means and deviations against independent computations."""

from __future__ import annotations

import itertools
import math
import statistics
import subprocess
import sys

import numpy as np
import pytest

from fednode.lab.experiment import figures
from fednode.lab.experiment.figures import clustered_bootstrap


def test_mean_and_deviation_are_the_textbook_ones() -> None:
    values = [0.31, 0.42, 0.27, 0.55]
    assert figures.mean(values) == pytest.approx(statistics.mean(values))
    assert figures.std(values) == pytest.approx(statistics.stdev(values))
    assert math.isnan(figures.mean([]))


def test_a_table_shows_every_cell_literally() -> None:
    assert figures.markdown_table(("method", "new, %"), [("a|b", "50.0")]) == [
        "| method | new, % |",
        "| --- | ---: |",
        r"| a\|b | 50.0 |",
    ]


def test_the_demo_gets_by_without_torch() -> None:
    code = "import sys, fednode.lab.demo.demo; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_interval_of_equal_values_is_that_value() -> None:
    assert clustered_bootstrap([[0.25, 0.25], [0.25]], 100) == (0.25, 0.25)
    assert all(map(math.isnan, clustered_bootstrap([[], []], 100)))


def test_interval_repeats_and_contains_the_mean() -> None:
    groups = [[0.1, 0.2, 0.0], [0.3, 0.1, 0.2], [0.0, -0.1, 0.2]]
    low, high = clustered_bootstrap(groups, 2000)
    assert (low, high) == clustered_bootstrap(groups, 2000)
    assert low < statistics.mean(itertools.chain(*groups)) < high


def test_interval_has_the_width_that_theory_gives() -> None:
    """Two stages: Var = population variance of the group means / G + mean inner variance / (G m).

    With many groups the bootstrap distribution is nearly normal, so the interval is +-1.96 of it.
    """
    generator = np.random.default_rng(5)
    centres = generator.normal(0.0, 0.3, size=60)
    groups = centres[:, None] + generator.normal(0.0, 0.2, size=(60, 8))
    between = np.var(groups.mean(axis=1)) / 60
    within = np.mean(np.var(groups, axis=1)) / (60 * 8)
    expected = 2 * 1.96 * math.sqrt(between + within)
    low, high = clustered_bootstrap(groups.tolist(), 8000)
    assert high - low == pytest.approx(expected, rel=0.05)
    assert (low + high) / 2 == pytest.approx(groups.mean(), abs=0.1 * expected)


def test_seeds_that_disagree_widen_the_interval() -> None:
    apart = clustered_bootstrap([[0.0] * 5, [0.1] * 5, [0.2] * 5], 2000)
    mixed = clustered_bootstrap([[0.0, 0.1, 0.2, 0.0, 0.1]] * 3, 2000)
    assert apart[1] - apart[0] > 2 * (mixed[1] - mixed[0])
