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
    evaluation: Evaluation

    @property
    def place(self) -> list[Any]:
        """The first columns of a line: whose results they are."""
        return [*self.cell.place, self.test, self.node]


def packed(results: Mapping[str, Mapping[str, Evaluation]]) -> dict[str, Any]:
    """Return results as JSON: by test, a list of the different results with their nodes.

    confusion: [row, column, images] of each entry that is not 0.
    """
    tree: dict[str, Any] = {}
    for test, nodes in results.items():
        alike: dict[int, tuple[Evaluation, list[str]]] = {}
        for node, evaluation in nodes.items():
            alike.setdefault(id(evaluation), (evaluation, []))[1].append(node)
        tree[test] = [
            {
                "nodes": names,
                "classes": list(shared.classes),
                "auc": [None if math.isnan(value) else value for value in shared.auc.tolist()],
                "confusion": [
                    [int(row), int(column), int(shared.confusion[row, column])]
                    for row, column in zip(*np.nonzero(shared.confusion), strict=True)
                ],
            }
            for shared, names in alike.values()
        ]
    return tree


def results(done: Sequence[Done]) -> list[Result]:
    """Return the results in the outcomes of cells; those of old versions of fednode have none."""
    return [
        Result(ended.cell, test, node, evaluation)
        for ended in done
        for test, nodes in _unpacked(ended.outcome).items()
        for node, evaluation in sorted(nodes.items())
    ]


def _unpacked(outcome: Mapping[str, Any]) -> Results:
    read: Results = {}
    for test, entries in outcome.get("by_class", {}).items():
        for entry in entries:
            names = tuple(entry["classes"])
            confusion = np.zeros((len(names), len(names)), np.int64)
            for row, column, images in entry["confusion"]:
                confusion[row, column] = images
            auc = np.array(
                [
                    math.nan if auc_of_class is None else auc_of_class
                    for auc_of_class in entry["auc"]
                ],
                np.float64,
            )
            evaluation = Evaluation(names, confusion, auc)
            read.setdefault(test, {}).update(dict.fromkeys(entry["nodes"], evaluation))
    return read


def class_lines(node_results: Sequence[Result]) -> list[list[Any]]:
    """Return classes.csv: a line for each test, node and class; undefined figures are empty."""
    head = ["method", "seed", "left out", "test", "node", "class", "images", *FIGURES]
    lines: list[list[Any]] = [head]
    for result in node_results:
        for figures in result.evaluation.by_class:
            shown = ["" if math.isnan(value) else f"{value:.6f}" for value in figures.figures]
            lines.append([*result.place, figures.name, figures.images, *shown])
    return lines


def confusion_lines(node_results: Sequence[Result]) -> list[list[Any]]:
    """Return confusion.csv: a line for each entry of a confusion matrix that is not 0."""
    head = ["method", "seed", "left out", "test", "node", "true class", "predicted class", "images"]
    lines: list[list[Any]] = [head]
    for result in node_results:
        matrix, classes = result.evaluation.confusion, result.evaluation.classes
        for row, column in zip(*np.nonzero(matrix), strict=True):
            names = [classes[row], classes[column]]
            lines.append([*result.place, *names, int(matrix[row, column])])
    return lines


def markdown(
    experiment: Experiment, table: Sequence[MethodRow], node_results: Sequence[Result]
) -> str:
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
    for result in node_results:
        tests.setdefault(result.test, []).append(result)
    for test, mine in tests.items():
        lines += ["", f"## {foreign.markdown(test)}"]
        by_method = {
            row.method.label: _by_class(
                [result for result in mine if result.cell.method.label == row.method.label]
            )
            for row in table
        }
        for figure, title in HEADS.items():
            lines += ["", f"{title}:", "", *_table(table, by_method, figure)]
    return "\n".join(lines) + "\n"


def _by_class(node_results: Sequence[Result]) -> ByClass:
    cells: dict[str, list[Evaluation]] = {}
    for result in node_results:
        cells.setdefault(result.cell.key, []).append(result.evaluation)
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
                seen = max(class_result.images for nodes in cells for class_result in nodes)
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
        values = [getattr(class_result, figure) for class_result in nodes]
        defined = [value for value in values if not math.isnan(value)]
        if defined:
            means.append(mean(defined))
    return f"{100 * mean(means):.1f}" if means else "-"
