"""Paired differences of methods, against the values by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fednode.errors import ConfigError
from fednode.lab.experiment import figures
from fednode.lab.experiment.cells import Cell, Done
from fednode.lab.experiment.report import markdown
from fednode.lab.experiment.settings import MethodSettings, ProtocolSettings
from tests.unit.lab.experiment.results import trial

ALONE = MethodSettings(label="alone", policy={"name": "local"})
OURS = MethodSettings(label="ours", policy={"name": "promptfl"})
WORSE = MethodSettings(label="worse", policy={"name": "promptfl"})
MADE = trial(OURS, ALONE, WORSE, protocol={"kind": "base-to-new"}, seeds=(1, 2))


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


def test_a_control_that_is_no_method_is_refused() -> None:
    with pytest.raises((ConfigError, ValueError), match="against names 'nobody'"):
        replace(MADE, against=("nobody",))


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
