"""Statistics of experiments and of the demo, and differences of methods from their controls.

Differences are paired by seed and node, with 95 % intervals. Nothing here imports torch, so
`fednode mesh demo` stays light.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from fednode.core import foreign
from fednode.evaluation.intervals import LEVELS
from fednode.lab.experiment.cells import Done
from fednode.lab.experiment.settings import Experiment

CONTROL = "local"
"""The policy of the control of an experiment that names none."""


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
    """Return the arithmetic mean; nan of nothing."""
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
        return ("base", "new", "own")
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


def lines(experiment: Experiment, done: Sequence[Done]) -> list[str]:
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
