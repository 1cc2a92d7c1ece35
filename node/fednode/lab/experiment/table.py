"""From cells to figures: mean and deviation over seeds, bytes, curves.

A figure of one test and seed is the mean over the nodes tested. "avg" is the mean over the columns,
as the papers print it. Base-to-new over several data sets averages each kind of test apart over the
data sets ("base", "new", "own"). H is the harmonic mean of "base" and "new". Deviations are
of a sample (n - 1); one seed has none. Differences of methods from their controls are paired by
seed and node, with 95 % intervals. Nothing here imports torch, so `fednode mesh demo` stays light.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np

from fednode.core import foreign
from fednode.evaluation.intervals import LEVELS
from fednode.lab.experiment.cells import Done, Outcome
from fednode.lab.experiment.files import CONTROL, learns
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Method minus control, paired by (seed, node), with a bootstrap 95 % interval."""

    metric: str
    method: str
    control: str
    mean: float
    low: float
    high: float
    pairs: int
    seeds: int
    wins: int


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def std(values: Sequence[float]) -> float:
    """Return the sample standard deviation (divisor n - 1) of two values or more."""
    return float(np.std(values, ddof=1))


def clustered_bootstrap(
    groups: Sequence[Sequence[float]], resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean, resampling groups and then their values.

    Args:
        groups: the values of each seed. The values of a seed are not independent (the nodes
            exchange prompts, or share few images), so seeds are drawn with replacement first, and
            nodes within each seed after.
    """
    filled = [group for group in groups if len(group)]
    if not filled:
        return float("nan"), float("nan")
    sizes = np.array([len(group) for group in filled])
    values = np.zeros((len(filled), sizes.max()))
    for row, group in zip(values, filled, strict=True):
        row[: len(group)] = group
    generator = np.random.default_rng(seed)
    chosen = generator.integers(len(filled), size=(resamples, len(filled)))
    drawn = generator.random((resamples, *values.shape)) * sizes[chosen][:, :, None]
    picked = values[chosen[:, :, None], drawn.astype(np.intp)]
    # A shorter group gives as many values as it has; the places beyond do not count.
    counts = np.arange(values.shape[1]) < sizes[chosen][:, :, None]
    means = (picked * counts).sum(axis=(1, 2)) / counts.sum(axis=(1, 2))
    low, high = np.quantile(means, LEVELS)
    return float(low), float(high)


def markdown_table(head: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table; all columns but the first stand to the right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    title, *rest = ([foreign.markdown(cell) for cell in texts] for texts in (head, *body))
    return [f"| {' | '.join(cells)} |" for cells in (title, rule, *rest)]


def controls(experiment: Experiment) -> tuple[str, ...]:
    """Return the labels of the controls: `against`, or else the first method of policy local."""
    if experiment.against is not None:
        return experiment.against
    labels = [method.label for method in experiment.methods if method.policy.get("name") == CONTROL]
    return tuple(labels[:1]) if len(experiment.methods) > 1 else ()


def tested(experiment: Experiment) -> tuple[str, ...]:
    """Return the columns that are compared: all tests together, or base, new and own."""
    if experiment.protocol.kind == "base-to-new":
        return KINDS
    return ("avg",)


def _scores(done: Sequence[Done], label: str, column: str) -> dict[tuple[int, str], float]:
    """Return a method's accuracies in a column of `tested` by seed and node.

    A node counts once in each test.
    """
    return {
        (ended.cell.seed, f"{ended.cell.target}/{test}/{node}"): value
        for ended in done
        if ended.cell.method.label == label
        for test, node, value in ended.scores()
        if column == "avg" or test.split("/")[-1] == column
    }


def differences(
    experiment: Experiment, done: Sequence[Done], resamples: int = 10_000
) -> Iterator[Difference]:
    """Yield each method's difference from each control in each column that both have."""
    for control, method, column in product(
        controls(experiment), (method.label for method in experiment.methods), tested(experiment)
    ):
        ours, theirs = (_scores(done, label, column) for label in (method, control))
        by_seed: dict[int, list[float]] = {}
        for seed, node in sorted(ours.keys() & theirs.keys()):
            by_seed.setdefault(seed, []).append(ours[seed, node] - theirs[seed, node])
        if method == control or not by_seed:
            continue
        values = [value for of_seed in by_seed.values() for value in of_seed]
        low, high = clustered_bootstrap(list(by_seed.values()), resamples)
        yield Difference(
            metric=column,
            method=method,
            control=control,
            mean=mean(values),
            low=low,
            high=high,
            pairs=len(values),
            seeds=len(by_seed),
            wins=sum(value > 0 for value in values),
        )


def difference_lines(experiment: Experiment, done: Sequence[Done]) -> list[str]:
    """Return a table for each control: points, the interval, and how many pairs are better."""
    text_lines: list[str] = []
    every = {(row.control, row.method, row.metric): row for row in differences(experiment, done)}
    for control in controls(experiment):
        body = []
        for method in experiment.methods:
            row = [every.get((control, method.label, name)) for name in tested(experiment)]
            seeds = max((cell.seeds for cell in row if cell), default=0)
            if seeds:
                cells = (_cell(cell) if cell else "-" for cell in row)
                body.append([method.label, str(seeds), *cells])
        if body:
            text = (
                f"Less {control}, in points: mean, 95 % interval over seeds and nodes, and in how "
                "many pairs of seed, node and test the method is better:"
            )
            head = ["method", "seeds", *tested(experiment)]
            text_lines += [text, "", *markdown_table(head, body), ""]
    return text_lines


def _cell(row: Difference) -> str:
    low, high = 100 * row.low, 100 * row.high
    return f"{100 * row.mean:+.1f} ({low:+.1f} to {high:+.1f}), {row.wins} of {row.pairs}"
