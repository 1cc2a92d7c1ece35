"""Means, deviations and paired differences against independent computations."""

from __future__ import annotations

import itertools
import math
import statistics
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fednode.lab.experiment import figures
from fednode.lab.experiment.cells import Cell, Done
from fednode.lab.experiment.figures import clustered_bootstrap
from fednode.lab.experiment.report import markdown
from fednode.lab.experiment.settings import MethodSettings, ProtocolSettings
from tests.unit.lab.experiment.results import trial

ALONE = MethodSettings(label="alone", policy={"name": "local"})
OURS = MethodSettings(label="ours", policy={"name": "promptfl"})
WORSE = MethodSettings(label="worse", policy={"name": "promptfl"})
MADE = trial(OURS, ALONE, WORSE, protocol={"kind": "base-to-new"}, seeds=(1, 2))


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


def done(method: MethodSettings, seed: int, base: list[float]) -> Done:
    scores = {"base": {f"node-{at}": one for at, one in enumerate(base)}}
    return Done(Cell(method, seed, "", "k"), {"scores": scores, "seconds": 1.0})


DONE = [
    done(ALONE, 1, [0.5, 0.6]),
    done(ALONE, 2, [0.5, 0.5]),
    done(OURS, 1, [0.7, 0.7]),
    done(OURS, 2, [0.6, 0.4]),
    done(WORSE, 1, [0.4, 0.5]),
]


def test_methods_are_compared_with_the_control_on_equal_seeds_and_nodes() -> None:
    found = {one.method: one for one in figures.differences(MADE, DONE, 500)}
    assert set(found) == {"ours", "worse"}
    assert found["ours"].mean == pytest.approx((0.2 + 0.1 + 0.1 - 0.1) / 4)
    assert (found["ours"].pairs, found["ours"].seeds, found["ours"].wins) == (4, 2, 3)
    assert found["ours"].low < found["ours"].mean < found["ours"].high
    assert found["worse"].mean == pytest.approx(-0.1)
    assert found["worse"].low == pytest.approx(found["worse"].high)


def test_the_report_has_a_table_for_each_control() -> None:
    text = markdown(MADE, DONE, "command")
    assert "Less alone, in points" in text
    assert "| worse | 1 | -10.0 (-10.0 to -10.0), 0 of 2 | - | - |" in text
    both = replace(MADE, against=("ours", "worse"))
    text = markdown(both, DONE, "command")
    assert "Less ours, in points" in text
    assert "Less worse, in points" in text
    assert "Less alone" not in text
    assert not figures.lines(replace(MADE, against=()), DONE)


def test_left_out_domains_are_pairs_of_their_own() -> None:
    made = replace(
        MADE,
        protocol=ProtocolSettings("leave-one-domain-out", targets=("art", "photo")),
        methods=(OURS, ALONE),
    )
    ended = [
        Done(Cell(method, 1, target, "k"), {"scores": {target: {"a": value}}, "seconds": 1.0})
        for method, values in ((ALONE, (0.5, 0.5)), (OURS, (0.6, 0.9)))
        for target, value in zip(("art", "photo"), values, strict=True)
    ]
    (found,) = figures.differences(made, ended, 500)
    assert (found.metric, found.pairs) == ("avg", 2)
    assert found.mean == pytest.approx(0.25)
