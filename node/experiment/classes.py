"""Results by class in an experiment: in a cell's file, classes.md, classes.csv, confusion.csv.

A figure of a class in one seed is the mean over the nodes that are tested on the class and in which
the figure is defined (node/learn/evaluation.py says when). Nodes that hold the same prompts have
one entry in a cell's file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fednode.core import foreign
from fednode.experiment.figures import markdown_table, mean
from fednode.learn.evaluation import FIGURES, Evaluation

if TYPE_CHECKING:
    from fednode.experiment.run import Done
    from fednode.experiment.settings import Experiment
    from fednode.experiment.table import Row

HEADS: Final = {"sensitivity": "Sensitivity", "specificity": "Specificity", "auc": "AUC"}
Results = dict[str, dict[str, Evaluation]]
"""Results by class, by test and node."""


def packed(results: Mapping[str, Mapping[str, Evaluation]]) -> dict[str, Any]:
    """Return results as JSON: by test, a list of the different results with their nodes.

    confusion: [row, column, images] of each entry that is not 0.
    """
    tree: dict[str, Any] = {}
    for test, nodes in results.items():
        alike: dict[int, tuple[Evaluation, list[str]]] = {}
        for node, one in nodes.items():
            alike.setdefault(id(one), (one, []))[1].append(node)
        tree[test] = [
            {
                "nodes": names,
                "classes": list(one.classes),
                "auc": [None if math.isnan(value) else value for value in one.auc.tolist()],
                "confusion": [
                    [int(row), int(column), int(one.confusion[row, column])]
                    for row, column in zip(*np.nonzero(one.confusion), strict=True)
                ],
            }
            for one, names in alike.values()
        ]
    return tree


def unpacked(outcome: Mapping[str, Any]) -> Results:
    """Return the results in a cell's outcome; none if an older version of fednode wrote it."""
    found: Results = {}
    for test, entries in outcome.get("by_class", {}).items():
        for entry in entries:
            names = tuple(entry["classes"])
            confusion = np.zeros((len(names), len(names)), np.int64)
            for row, column, images in entry["confusion"]:
                confusion[row, column] = images
            auc = np.array([math.nan if one is None else one for one in entry["auc"]], np.float64)
            one = Evaluation(names, confusion, auc)
            found.setdefault(test, {}).update(dict.fromkeys(entry["nodes"], one))
    return found


def class_lines(done: Sequence[Done]) -> list[list[Any]]:
    """Return classes.csv: a line for each test, node and class; undefined figures are empty."""
    head = ["method", "seed", "left out", "test", "node", "class", "images", *FIGURES]
    lines: list[list[Any]] = [head]
    for place, found in _each(done):
        for one in found.by_class:
            figures = [getattr(one, name) for name in FIGURES]
            shown = ["" if math.isnan(value) else f"{value:.6f}" for value in figures]
            lines.append([*place, one.name, one.images, *shown])
    return lines


def confusion_lines(done: Sequence[Done]) -> list[list[Any]]:
    """Return confusion.csv: a line for each entry of a confusion matrix that is not 0."""
    head = ["method", "seed", "left out", "test", "node", "true class", "predicted class", "images"]
    lines: list[list[Any]] = [head]
    for place, found in _each(done):
        for row, column in zip(*np.nonzero(found.confusion), strict=True):
            names = [found.classes[row], found.classes[column]]
            lines.append([*place, *names, int(found.confusion[row, column])])
    return lines


def _each(done: Sequence[Done]) -> Iterator[tuple[list[Any], Evaluation]]:
    """Yield all results, each with the cells that say whose it is."""
    for one in done:
        cell = one.cell
        for test, nodes in unpacked(one.outcome).items():
            for node, found in sorted(nodes.items()):
                yield [cell.method.label, cell.seed, cell.target, test, node], found


def markdown(experiment: Experiment, table: Sequence[Row], done: Sequence[Done]) -> str:
    """Return classes.md: for each test and figure, a table of the classes and methods."""
    many = len(experiment.seeds) > 1
    lines = [
        f"# {foreign.markdown(experiment.title)}: results by class",
        "",
        "In percent, each class against the rest, after the last round"
        + ("; mean over seeds and nodes." if many else "; mean over nodes."),
        "docs/evaluation.md defines the figures; a dash stands for an undefined figure.",
    ]
    by_method = {
        row.method.label: [
            unpacked(one.outcome) for one in done if one.cell.method.label == row.method.label
        ]
        for row in table
    }
    tests = dict.fromkeys(
        test for cells in by_method.values() for results in cells for test in results
    )
    for test in tests:
        lines += ["", f"## {foreign.markdown(test)}"]
        for figure, title in HEADS.items():
            lines += ["", f"{title}:", "", *_table(table, by_method, test, figure)]
    return "\n".join(lines) + "\n"


def _table(
    table: Sequence[Row], by_method: Mapping[str, Sequence[Results]], test: str, figure: str
) -> list[str]:
    """Return the table of one figure in one test, with the means over classes at its end."""
    columns = {
        label: [list(results[test].values()) for results in cells if test in results]
        for label, cells in by_method.items()
    }
    seen = [one for cells in columns.values() for nodes in cells for one in nodes]
    names = list(dict.fromkeys(name for one in seen for name in one.classes))
    body = [
        ["seeds", "", *(row.seeds_said for row in table)],
        ["rounds", "", *(row.rounds_said for row in table)],
    ]
    total = 0
    for name in names:
        images = max(one.images for found in seen for one in found.by_class if one.name == name)
        total += images
        cells = [_shown(_over_cells(columns[row.method.label], figure, name)) for row in table]
        body.append([name, str(images), *cells])
    cells = [_shown(_over_cells(columns[row.method.label], figure, None)) for row in table]
    body.append([f"mean of {len(names)} classes", str(total), *cells])
    return markdown_table(["class", "test images", *(row.method.label for row in table)], body)


def _over_cells(
    cells: Sequence[Sequence[Evaluation]], figure: str, name: str | None
) -> float | None:
    """Return the mean over seeds of the mean over nodes of a class's figure; None: over classes."""
    means = []
    for nodes in cells:
        values = [
            getattr(one, figure)
            for found in nodes
            for one in (found.by_class if name is not None else (found.mean,))
            if name is None or one.name == name
        ]
        defined = [value for value in values if not math.isnan(value)]
        if defined:
            means.append(mean(defined))
    return mean(means) if means else None


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
