"""From cells to figures: mean and deviation over seeds, bytes, curves.

A figure of one test and seed is the mean over the nodes tested. "avg" is the mean over the columns,
as the papers print it. Base-to-new over several data sets averages each kind of test apart over the
data sets ("base", "new", "own"). H is the harmonic mean of "base" and "new". Deviations are
of a sample (n - 1); one seed has none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fednode.lab.experiment.cells import Done, Outcome
from fednode.lab.experiment.figures import mean, std
from fednode.lab.experiment.files import learns
from fednode.lab.experiment.scene import columns
from fednode.lab.experiment.settings import Experiment, MethodSettings

HARMONIC: Final = "H"
KINDS: Final = ("base", "new", "own")
TRAFFIC: Final = ("messages", "payload", "serialized", "wire")


@dataclass(frozen=True, slots=True)
class Figure:
    """Percent: mean over seeds, and their deviation (None for one seed)."""

    mean: float
    over_seeds: float | None

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + ("" if self.over_seeds is None else f" ± {self.over_seeds:.1f}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodRow:
    """One method: figures by column, "avg" and the like among them.

    seeds: that have an outcome, of `planned` ones. rounds: None if the method learns nothing.
    traffic: bytes and messages of all nodes in a whole run, mean over cells; "paper": as the
    method's paper counts bytes, where it does.
    """

    method: MethodSettings
    seeds: int
    planned: int
    rounds: int | None
    figures: dict[str, Figure]
    traffic: dict[str, float] | None
    consensus: float | None
    seconds: float
    warnings: int

    @property
    def about(self) -> list[str]:
        """The first cells of every table: label, seeds (of the planned ones), rounds."""
        short = f" of {self.planned}" if self.seeds < self.planned else ""
        rounds = "-" if self.rounds is None else str(self.rounds)
        return [self.method.label, f"{self.seeds}{short}", rounds]


def rows(experiment: Experiment, done: Sequence[Done]) -> list[MethodRow]:
    shown = shown_columns(experiment)
    return [
        _row(experiment, method, shown, [ended for ended in done if ended.cell.method == method])
        for method in experiment.methods
    ]


def shown_columns(experiment: Experiment) -> dict[str, list[str]]:
    """Return the columns of the table, averages last, each with the tests whose mean it is."""
    tests = columns(experiment)
    single = {test: [test] for test in tests}
    if experiment.protocol.kind != "base-to-new":
        return {**single, "avg": [*tests]}
    parts = {kind: [test for test in tests if test.rpartition("/")[2] == kind] for kind in KINDS}
    parts[HARMONIC] = []
    if experiment.protocol.datasets is None:
        return {name: parts[name] for name in ("base", "new", HARMONIC, "own")}
    means = {name: parts[name] for name in ("new", "base", HARMONIC, "own")}
    return {**{test: [test] for test in parts["new"]}, **means}


def _row(
    experiment: Experiment,
    method: MethodSettings,
    shown: Mapping[str, list[str]],
    done: list[Done],
) -> MethodRow:
    outcomes = {
        seed: [ended.outcome for ended in done if ended.outcome and ended.cell.seed == seed]
        for seed in experiment.seeds
    }
    played = [outcome for of_seed in outcomes.values() for outcome in of_seed]
    by_seed = [
        {
            test: list(nodes.values())
            for outcome in of_seed
            for test, nodes in outcome["scores"].items()
        }
        for of_seed in outcomes.values()
    ]
    figures = {name: _figure(shown, name, by_seed) for name in shown}
    last = [outcome["consensus"][-1] for outcome in played if outcome.get("consensus")]
    last = [distance for distance in last if math.isfinite(distance)]  # of arrays that differ: none
    return MethodRow(
        method=method,
        seeds=sum(map(bool, by_seed)),
        planned=len(experiment.seeds),
        rounds=experiment.rounds_of(method).max if learns(method) else None,
        figures={name: figure for name, figure in figures.items() if figure is not None},
        traffic=_traffic(played),
        consensus=mean(last) if last else None,
        seconds=sum(outcome["seconds"] for outcome in played),
        warnings=sum(len(outcome.get("warnings", ())) for outcome in played),
    )


def test_images(experiment: Experiment, done: Sequence[Done]) -> dict[str, float]:
    """Return how many test images a figure of each column is measured on.

    That is the number of images that a node is tested on, mean over nodes and seeds. A column that
    is a mean over tests has the sum of their numbers. Columns without a number are left out: those
    that no outcome has counted, and H.
    """
    counts: dict[str, list[float]] = {}
    for ended in done:
        for test, nodes in ended.outcome.get("by_node", {}).items():
            images = [sum(row[-1] for row in one["confusion"]) for one in nodes.values()]
            counts.setdefault(test, []).append(mean(images))
    return {
        column: sum(mean(counts[test]) for test in tests)
        for column, tests in shown_columns(experiment).items()
        if tests and all(test in counts for test in tests)
    }


def _figure(
    shown: Mapping[str, list[str]], column: str, by_seed: list[dict[str, list[float]]]
) -> Figure | None:
    values = [_value(shown, column, scores) for scores in by_seed]
    means = [100 * value for value in values if value is not None]
    if not means:
        return None
    return Figure(mean(means), std(means) if len(means) > 1 else None)


def _value(
    shown: Mapping[str, list[str]], column: str, scores: dict[str, list[float]]
) -> float | None:
    """Return a column's accuracy in one seed; None where a part of it is not there yet."""
    if column == HARMONIC:
        base, new = (_value(shown, half, scores) for half in ("base", "new"))
        if base is None or new is None:
            return None
        return 2 * base * new / (base + new) if base + new else 0.0
    if not all(test in scores for test in shown[column]):
        return None
    return mean([mean(scores[test]) for test in shown[column]])


def _traffic(outcomes: Sequence[Outcome]) -> dict[str, float] | None:
    spoken = [outcome for outcome in outcomes if outcome.get("bytes")]
    if not spoken:
        return None
    totals: dict[str, list[Any]] = {
        key: [
            sum(meter[key] for phase, meter in outcome["bytes"].items() if phase != "hello")
            for outcome in spoken
        ]
        for key in TRAFFIC
    }
    paper = [outcome["paper_bytes"] for outcome in spoken if outcome.get("paper_bytes") is not None]
    return {key: mean(values) for key, values in {**totals, "paper": paper}.items() if values}
