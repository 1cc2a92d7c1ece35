"""Turn what the daemons of a demo reported into statistics, a table and a verdict.

Pure: numbers in, numbers and text out, so that every figure can be checked by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from fednode.learn.figures import Difference, mean, std
from fednode.learn.figures import difference as paired

METRICS: Final = ("base", "new", "own")
ZERO_SHOT: Final = "zero-shot"
UNITS: Final = {
    "accuracy": "fraction from 0 to 1 of test images named right (mean and sample standard "
    "deviation, divisor n - 1, over the n pairs of node and seed)",
    "bytes": "sent by all nodes together in one run, mean over the seeds; payload_bytes: tensors "
    "as encoded, serialized_bytes: whole frames, wire_bytes: with gRPC and HTTP/2 framing "
    "(estimated)",
}


@dataclass(frozen=True, slots=True)
class Point:
    """A node's accuracies after a round, and what it had sent by then."""

    round: int
    metrics: Mapping[str, float]
    payload_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one node reported at the end of one run.

    metrics, zero_shot: accuracies (0..1) by set: own, base, new. rounds: adopted. payload_bytes,
    serialized_bytes, wire_bytes: sent over the whole run. points: the rounds with accuracies.
    """

    method: str
    seed: int
    node: str
    metrics: Mapping[str, float]
    zero_shot: Mapping[str, float]
    rounds: int
    payload_bytes: int = 0
    serialized_bytes: int = 0
    wire_bytes: int = 0
    points: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: accuracies as fractions, bytes sent by all nodes in a run."""

    method: str
    n: int
    base_mean: float
    base_std: float
    new_mean: float
    new_std: float
    own_mean: float
    own_std: float
    payload_bytes: float
    serialized_bytes: float
    wire_bytes: float


def rows(outcomes: Sequence[Outcome], methods: Sequence[str]) -> list[Row]:
    """Return the zero-shot row, then one row for each method."""
    # Every method measures the same untuned model: one measurement for each node and seed counts.
    zero = list({(one.seed, one.node): one.zero_shot for one in outcomes}.values())
    table = [_row(ZERO_SHOT, zero, [])]
    for method in methods:
        mine = [one for one in outcomes if one.method == method]
        table.append(_row(method, [one.metrics for one in mine], mine))
    return table


def _row(method: str, metrics: Sequence[Mapping[str, float]], mine: Sequence[Outcome]) -> Row:
    by_set = {name: [one[name] for one in metrics if name in one] for name in METRICS}
    found = {f"{name}_mean": mean(values) for name, values in by_set.items()}
    found |= {f"{name}_std": std(values) for name, values in by_set.items()}
    runs = max(1, len({one.seed for one in mine}))
    for name in ("payload_bytes", "serialized_bytes", "wire_bytes"):
        found[name] = sum(getattr(one, name) for one in mine) / runs
    return Row(method=method, n=len(metrics), **found)


def difference(
    outcomes: Sequence[Outcome], method: str, control: str, metric: str, resamples: int = 10_000
) -> Difference:
    """Return method minus control on a metric over the (seed, node) pairs that both have."""
    ours, theirs = (_by_pair(outcomes, name, metric) for name in (method, control))
    return paired(metric, (method, ours), (control, theirs), resamples)


def _by_pair(outcomes: Iterable[Outcome], method: str, metric: str) -> dict[tuple[int, str], float]:
    return {
        (one.seed, one.node): one.metrics[metric]
        for one in outcomes
        if one.method == method and metric in one.metrics
    }


@dataclass(frozen=True, slots=True)
class DemoReport:
    """All that a demo leaves behind, before it is written down.

    about: what was run (command, versions, seeds, settings, ...), printed as it is.
    remarks: sentences on what went otherwise than planned.
    """

    table: tuple[Row, ...]
    differences: tuple[Difference, ...]
    outcomes: tuple[Outcome, ...]
    about: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the content of report.json; accuracies are fractions, missing figures null."""
        return {
            "rows": [_finite(asdict(row)) for row in self.table],
            "units": UNITS,
            "differences": [_finite(asdict(one)) for one in self.differences],
            "differences_are": interval_method(self.differences),
            "verdict": verdict(self),
            "remarks": list(self.remarks),
            "about": dict(self.about),
            "outcomes": [asdict(one) for one in self.outcomes],
        }


def build(
    outcomes: Sequence[Outcome],
    method: str,
    control: str,
    about: Mapping[str, Any] | None = None,
    remarks: Sequence[str] = (),
) -> DemoReport:
    """Return the report of a method beside its control, which got the same data and steps."""
    return DemoReport(
        table=tuple(rows(outcomes, (control, method))),
        differences=tuple(difference(outcomes, method, control, name) for name in METRICS),
        outcomes=tuple(outcomes),
        about=about or {},
        remarks=tuple(remarks),
    )


def _finite(figures: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not np.isfinite(value) else value
        for name, value in figures.items()
    }


def interval_method(differences: Sequence[Difference]) -> str:
    """Return one sentence on how the intervals were made and what they cannot say."""
    seeds = max((one.seeds for one in differences), default=0)
    resamples = max((one.resamples for one in differences), default=0)
    return (
        f"Paired by (seed, node); 95 % percentile interval of {resamples:,} bootstrap resamples, "
        "seeds drawn with replacement first and nodes within each seed after, because the nodes "
        f"of one run are not independent; with only {seeds} seed{'s'[: seeds != 1]} it is a rough "
        "guide."
    )


def points(fraction: float) -> str:
    """Return a difference of fractions in percentage points, signed."""
    return f"{100 * fraction:+.1f}"


def verdict(report: DemoReport) -> str:
    """Return what the table says about the method and its control on new classes, plainly."""
    found = next((one for one in report.differences if one.metric == "new"), None)
    if found is None or not found.pairs:
        return "No pair of runs has accuracies on new classes, so nothing can be compared."
    span = f"{points(found.mean)} points (95 % interval {points(found.low)} to {points(found.high)}"
    span += f"; better in {found.wins} of {found.pairs} pairs)"
    if found.low > 0:
        text = f"{found.method} beats {found.control} on new classes: {span}."
    elif found.high < 0:
        text = f"{found.method} is worse than {found.control} on new classes: {span}."
    else:
        text = (
            f"{found.method} does not clearly beat {found.control} on new classes: {span}; the "
            f"interval includes zero.{_room(report.table, found.control)}"
        )
    return f"{text} {_beside_zero_shot(report.table, found.method)}".strip()


def _room(table: Sequence[Row], control: str) -> str:
    """Say how much an exchange could have won: what the control lost on new classes."""
    figures = {row.method: row.new_mean for row in table}
    lost = figures.get(ZERO_SHOT, float("nan")) - figures.get(control, float("nan"))
    if not np.isfinite(lost):
        return ""
    if lost <= 0:
        return (
            f" {control} lost nothing on new classes against zero-shot, so an exchange had no loss "
            "to guard against."
        )
    return (
        f" {control} lost {100 * lost:.1f} points on new classes against zero-shot; an exchange "
        "guards against that loss, so little more was to be won here."
    )


def _beside_zero_shot(table: Sequence[Row], method: str) -> str:
    figures = {row.method: row.new_mean for row in table}
    if method not in figures or not np.isfinite(figures.get(ZERO_SHOT, float("nan"))):
        return ""
    gap = figures[method] - figures[ZERO_SHOT]
    if gap >= 0.01:
        return f"{method} is {points(gap)} points from zero-shot: it gains on new classes, too."
    if gap >= 0.0005:
        return f"{method} is {points(gap)} points from zero-shot."
    if gap <= -0.0005:
        return (
            f"{method} is {points(gap)} points from zero-shot: on new classes the untuned model is "
            "better."
        )
    return f"{method} equals zero-shot on new classes."
