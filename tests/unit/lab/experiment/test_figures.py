"""Means and deviations against independent computations."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys

import pytest

from fednode.lab.experiment import figures


def test_mean_and_deviation_are_the_textbook_ones() -> None:
    values = [0.31, 0.42, 0.27, 0.55]
    assert figures.mean(values) == pytest.approx(statistics.mean(values))
    assert figures.std(values) == pytest.approx(statistics.stdev(values))
    assert figures.std([0.4]) == 0.0
    assert math.isnan(figures.mean([]))
    assert math.isnan(figures.std([]))


def test_harmonic_mean_of_two_accuracies() -> None:
    assert figures.harmonic(0.4, 0.6) == pytest.approx(statistics.harmonic_mean([0.4, 0.6]))
    assert figures.harmonic(0.0, 0.0) == figures.harmonic(0.0, 0.5) == 0.0


def test_a_table_shows_every_cell_literally() -> None:
    assert figures.markdown_table(("method", "new, %"), [("a|b", figures.spread(50, 1.25))]) == [
        "| method | new, % |",
        "| --- | ---: |",
        r"| a\|b | 50.0 ± 1.2 |",
    ]


def test_the_demo_gets_by_without_torch() -> None:
    code = "import sys, fednode.lab.demo.demo; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
