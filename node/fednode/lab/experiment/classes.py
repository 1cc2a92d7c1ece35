"""Results by class in an experiment: in a cell's file, classes.md, classes.csv, confusion.csv.

A figure of a class in one seed is the mean over the nodes that are tested on the class and in which
the figure is defined (node/fednode/learn/evaluation.py says when). Nodes that hold the same prompts
have one entry in a cell's file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fednode.core import foreign
from fednode.lab.experiment.cells import Cell, Done
from fednode.lab.experiment.figures import markdown_table, mean
from fednode.lab.experiment.settings import Experiment
from fednode.lab.experiment.table import MethodRow
from fednode.learn.evaluation import FIGURES, ClassResult, Evaluation

HEADS: Final = {"sensitivity": "Sensitivity", "specificity": "Specificity", "auc": "AUC"}
Results = dict[str, dict[str, Evaluation]]
"""Results by class, by test and node."""
ByClass = dict[str | None, list[list[ClassResult]]]
"""Results of a method by class (None: means over classes), for each cell, of each node."""


@dataclass(frozen=True, slots=True)
class Result:
    """The results by class of a node in a test of a cell."""

    cell: Cell
    test: str
    node: str
    found: Evaluation

    @property
    def place(self) -> list[Any]:
        """The first columns of a line: whose results they are."""
        cell = self.cell
        return [cell.method.label, cell.seed, cell.target, self.test, self.node]


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


def results(done: Sequence[Done]) -> list[Result]:
    """Return the results in the outcomes of cells; those of old versions of fednode have none."""
    return [
        Result(one.cell, test, node, found)
        for one in done
        for test, nodes in _unpacked(one.outcome).items()
        for node, found in sorted(nodes.items())
    ]


def _unpacked(outcome: Mapping[str, Any]) -> Results:
    """Return the results in a cell's outcome by test and node."""
    read: Results = {}
    for test, entries in outcome.get("by_class", {}).items():
        for entry in entries:
            names = tuple(entry["classes"])
            confusion = np.zeros((len(names), len(names)), np.int64)
            for row, column, images in entry["confusion"]:
                confusion[row, column] = images
            auc = np.array([math.nan if one is None else one for one in entry["auc"]], np.float64)
            one = Evaluation(names, confusion, auc)
            read.setdefault(test, {}).update(dict.fromkeys(entry["nodes"], one))
    return read


def class_lines(found: Sequence[Result]) -> list[list[Any]]:
    """Return classes.csv: a line for each test, node and class; undefined figures are empty."""
    head = ["method", "seed", "left out", "test", "node", "class", "images", *FIGURES]
    lines: list[list[Any]] = [head]
    for result in found:
        for one in result.found.by_class:
            shown = ["" if math.isnan(value) else f"{value:.6f}" for value in one.figures]
            lines.append([*result.place, one.name, one.images, *shown])
    return lines


def confusion_lines(found: Sequence[Result]) -> list[list[Any]]:
    """Return confusion.csv: a line for each entry of a confusion matrix that is not 0."""
    head = ["method", "seed", "left out", "test", "node", "true class", "predicted class", "images"]
    lines: list[list[Any]] = [head]
    for result in found:
        matrix, classes = result.found.confusion, result.found.classes
        for row, column in zip(*np.nonzero(matrix), strict=True):
            names = [classes[row], classes[column]]
            lines.append([*result.place, *names, int(matrix[row, column])])
    return lines


def markdown(experiment: Experiment, table: Sequence[MethodRow], found: Sequence[Result]) -> str:
    """Return classes.md: for each test and figure, a table of the classes and methods."""
    many = len(experiment.seeds) > 1
    lines = [
        f"# {foreign.markdown(experiment.title)}: results by class",
        "",
        "In percent, each class against the rest, after the last round"
        + ("; mean over seeds and nodes." if many else "; mean over nodes."),
        "docs/evaluation.md defines the figures; a dash stands for an undefined figure.",
    ]
    tests: dict[str, list[Result]] = {}
    for one in found:
        tests.setdefault(one.test, []).append(one)
    for test, mine in tests.items():
        lines += ["", f"## {foreign.markdown(test)}"]
        by_method = {
            row.method.label: _by_class(
                [one for one in mine if one.cell.method.label == row.method.label]
            )
            for row in table
        }
        for figure, title in HEADS.items():
            lines += ["", f"{title}:", "", *_table(table, by_method, figure)]
    return "\n".join(lines) + "\n"


def _by_class(found: Sequence[Result]) -> ByClass:
    """Return one method's results in one test by class."""
    cells: dict[str, list[Evaluation]] = {}
    for one in found:
        cells.setdefault(one.cell.key, []).append(one.found)
    read: ByClass = {}
    for nodes in cells.values():
        mine: dict[str | None, list[ClassResult]] = {}
        for node in nodes:
            mine.setdefault(None, []).append(node.mean)
            for named in node.by_class:
                mine.setdefault(named.name, []).append(named)
        for name, values in mine.items():
            read.setdefault(name, []).append(values)
    return read


def _table(table: Sequence[MethodRow], by_method: Mapping[str, ByClass], figure: str) -> list[str]:
    """Return the table of one figure in one test, with the means over classes at its end."""
    images: dict[str, int] = {}
    for read in by_method.values():
        for name, cells in read.items():
            if name is not None:
                seen = max(one.images for nodes in cells for one in nodes)
                images[name] = max(images.get(name, 0), seen)
    head = ["class", "test images", *(row.method.label for row in table)]
    body = [
        ["seeds", "", *(row.seeds_said for row in table)],
        ["rounds", "", *(row.rounds_said for row in table)],
    ]
    last = f"mean of {len(images)} classes"
    for name, title, total in [
        *((name, name, count) for name, count in images.items()),
        (None, last, sum(images.values())),
    ]:
        shown = (_shown(by_method[row.method.label].get(name, []), figure) for row in table)
        body.append([title, str(total), *shown])
    return markdown_table(head, body)


def _shown(cells: Sequence[Sequence[ClassResult]], figure: str) -> str:
    """Return the mean over seeds of the mean over nodes of a figure, in percent, or a dash."""
    means = []
    for nodes in cells:
        values = [getattr(one, figure) for one in nodes]
        defined = [value for value in values if not math.isnan(value)]
        if defined:
            means.append(mean(defined))
    return f"{100 * mean(means):.1f}" if means else "-"
