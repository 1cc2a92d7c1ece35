"""From cells to figures: mean and deviation over seeds and over nodes, bytes, curves.

A figure of one test and seed is the mean over the nodes tested. "avg" is the mean over the columns,
as the papers print it. Base-to-new over several data sets averages each kind of test apart over the
data sets ("base", "new", "own"), and gives the mean over nodes beside it, which counts large data
sets more. H is the harmonic mean of "base" and "new". The deviation over nodes of a mean over data
sets is the mean of the data sets' deviations. Deviations are of a sample (n - 1); one seed has
none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from fednode.lab.experiment.cells import Done, Outcome
from fednode.lab.experiment.figures import harmonic, mean, spread, std
from fednode.lab.experiment.files import learns
from fednode.lab.experiment.scene import columns
from fednode.lab.experiment.settings import Experiment, MethodSettings

HARMONIC: Final = "H"
BY_NODE: Final = "new, by node"


@dataclass(frozen=True, slots=True)
class Figure:
    """Percent: mean over seeds, deviation over seeds (None for one), mean deviation over nodes."""

    mean: float
    over_seeds: float | None
    over_nodes: float | None
    seeds: int

    def __str__(self) -> str:
        return spread(self.mean, self.over_seeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Of one method, mean over its cells: bytes of all nodes in a whole run."""

    messages: float
    payload: float
    serialized: float
    wire: float
    paper: float | None
    nodes: int
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodRow:
    """One method: figures by column, "avg" and the like among them.

    seeds: that have an outcome, of `planned` ones. rounds: None if the method learns nothing.
    """

    method: MethodSettings
    seeds: int
    planned: int
    rounds: int | None
    figures: dict[str, Figure]
    traffic: Traffic | None
    consensus: float | None
    seconds: float
    warnings: int
    missing: int

    @property
    def seeds_said(self) -> str:
        """The number of seeds, and of the planned ones if some are missing."""
        short = self.seeds < self.planned
        return f"{self.seeds} of {self.planned}" if short else str(self.seeds)

    @property
    def rounds_said(self) -> str:
        """The number of rounds; a dash if the method learns nothing."""
        return "-" if self.rounds is None else str(self.rounds)


def rows(experiment: Experiment, done: Sequence[Done]) -> list[MethodRow]:
    return [
        _row(experiment, method, [ended for ended in done if ended.cell.method == method])
        for method in experiment.methods
    ]


def shown_columns(experiment: Experiment) -> tuple[str, ...]:
    """Return the columns of the table, averages last."""
    names = columns(experiment)
    if experiment.protocol.kind != "base-to-new":
        return (*names, "avg")
    if experiment.protocol.datasets is None:
        return ("base", "new", HARMONIC, "own")
    return (
        *(name for name in names if name.endswith("/new")),
        "new",
        BY_NODE,
        "base",
        HARMONIC,
        "own",
    )


def _row(experiment: Experiment, method: MethodSettings, done: list[Done]) -> MethodRow:
    played = [ended for ended in done if ended.outcome]
    by_seed = {
        seed: {
            name: list(nodes.values())
            for ended in played
            if ended.cell.seed == seed
            for name, nodes in ended.outcome["scores"].items()
        }
        for seed in experiment.seeds
    }
    figures = {
        column: figure
        for column in shown_columns(experiment)
        if (figure := _figure(experiment, column, list(by_seed.values()))) is not None
    }
    last = [ended.outcome["consensus"][-1] for ended in played if ended.outcome.get("consensus")]
    last = [
        distance for distance in last if math.isfinite(distance)
    ]  # nodes whose arrays differ have no distance
    return MethodRow(
        method=method,
        seeds=len({ended.cell.seed for ended in played}),
        planned=len(experiment.seeds),
        rounds=experiment.rounds_of(method).max if learns(method) else None,
        figures=figures,
        traffic=_traffic([ended.outcome for ended in played]),
        consensus=mean(last) if last else None,
        seconds=sum(ended.outcome["seconds"] for ended in played),
        warnings=sum(len(ended.outcome.get("warnings", ())) for ended in played),
        missing=len(done) - len(played),
    )


def test_images(experiment: Experiment, done: Sequence[Done]) -> dict[str, float]:
    """Return how many test images a figure of each column is measured on.

    That is the number of images that a node is tested on, mean over nodes and seeds. A column that
    is a mean over tests has the sum of their numbers. Columns without a number are left out: those
    that no outcome has counted, and H.
    """
    counts: dict[str, list[float]] = {}
    for ended in done:
        for test, nodes in images_of(ended.outcome).items():
            counts.setdefault(test, []).append(mean(nodes))
    images = {test: mean(values) for test, values in counts.items()}
    for column in shown_columns(experiment):
        parts = _parts(experiment, "new" if column == BY_NODE else column)
        if column not in images and parts and all(part in images for part in parts):
            images[column] = sum(images[part] for part in parts)
    return images


def images_of(outcome: Outcome) -> dict[str, list[int]]:
    """Return the number of images that each node was tested on in a cell, by test."""
    images: dict[str, list[int]] = {}
    for test, entries in outcome.get("by_class", {}).items():
        for entry in entries:
            count = sum(images for _, _, images in entry["confusion"])
            images.setdefault(test, []).extend([count] * len(entry["nodes"]))
    return images


def _figure(
    experiment: Experiment, column: str, seeds: list[dict[str, list[float]]]
) -> Figure | None:
    means: list[float] = []
    spreads: list[float] = []
    for scores in seeds:
        value = _value(experiment, column, scores)
        if value is not None:
            means.append(100 * value)
        parts = [column] if column in scores else _parts(experiment, column)
        apart = [std(scores[part]) for part in parts if len(scores.get(part, ())) > 1]
        if apart:
            spreads.append(100 * mean(apart))
    return _summed(means, spreads) if means else None


def _summed(means: list[float], spreads: list[float]) -> Figure:
    return Figure(
        mean(means),
        std(means) if len(means) > 1 else None,
        mean(spreads) if spreads else None,
        len(means),
    )


def _value(experiment: Experiment, column: str, scores: dict[str, list[float]]) -> float | None:
    """Return a column's accuracy in one seed; None where a part of it is not there yet."""
    if column in scores:
        return mean(scores[column])
    if column == HARMONIC:
        base, new = (_value(experiment, half, scores) or 0.0 for half in ("base", "new"))
        return harmonic(base, new) if base + new else None
    if column == BY_NODE:
        values = [
            accuracy
            for name, nodes in scores.items()
            if name.endswith("/new")
            for accuracy in nodes
        ]
        return mean(values) if values else None
    parts = _parts(experiment, column)
    if not parts or not all(part in scores for part in parts):
        return None
    return mean([mean(scores[part]) for part in parts])


def _parts(experiment: Experiment, column: str) -> list[str]:
    """Return the tests whose mean a column is."""
    if column == "avg":
        return list(columns(experiment))
    return [name for name in columns(experiment) if name.endswith(f"/{column}")]


def _traffic(outcomes: list[dict[str, Any]]) -> Traffic | None:
    spoken = [outcome for outcome in outcomes if outcome.get("bytes")]
    if not spoken:
        return None
    totals = {
        key: mean(
            [
                sum(meter[key] for phase, meter in outcome["bytes"].items() if phase != "hello")
                for outcome in spoken
            ]
        )
        for key in ("messages", "payload", "serialized", "wire")
    }
    paper = [outcome["paper_bytes"] for outcome in spoken if outcome.get("paper_bytes") is not None]
    return Traffic(
        **totals,
        paper=mean(paper) if paper else None,
        nodes=spoken[0]["nodes"],
        rounds=spoken[0]["rounds"],
    )
