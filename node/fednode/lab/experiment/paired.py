"""Differences of methods from their controls, paired by seed and node, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fednode.lab.experiment.cells import Done
from fednode.lab.experiment.figures import Difference, Scores, difference, markdown_table
from fednode.lab.experiment.settings import Experiment

CONTROL = "local"
"""The policy of the control of an experiment that names none."""


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


def scores(done: Sequence[Done], label: str, column: str) -> Scores:
    """Return a method's accuracies in a column by seed and node; a node counts once in each test.

    column: of `tested`.
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
    for control in controls(experiment):
        for method in experiment.methods:
            for column in tested(experiment) if method.label != control else ():
                ours, theirs = (scores(done, label, column) for label in (method.label, control))
                points = difference(column, (method.label, ours), (control, theirs), resamples)
                if points.pairs:
                    yield points


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
