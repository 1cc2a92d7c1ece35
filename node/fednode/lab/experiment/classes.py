"""Results by class in an experiment: in a cell's file, classes.csv and confusion.csv.

node/fednode/evaluation/results.py defines the figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fednode.evaluation.results import FIGURES, Evaluation
from fednode.lab.experiment.cells import PLACE, Done


def packed(results: Mapping[str, Mapping[str, Evaluation | None]]) -> dict[str, Any]:
    """Return results as JSON, by test and node; nodes without images are left out.

    confusion: [row, column, images] of each entry that is not 0.
    """
    return {
        test: {
            node: {
                "classes": list(one.classes),
                "auc": [None if math.isnan(value) else value for value in one.auc.tolist()],
                "confusion": [
                    [int(row), int(column), int(one.confusion[row, column])]
                    for row, column in zip(*np.nonzero(one.confusion), strict=True)
                ],
            }
            for node, one in nodes.items()
            if one is not None
        }
        for test, nodes in results.items()
    }


def class_lines(done: Sequence[Done]) -> list[list[Any]]:
    """Return classes.csv: a line for each test, node and class; undefined figures are empty."""
    lines: list[list[Any]] = [[*PLACE, "class", "images", *FIGURES]]
    for place, entry in _entries(done):
        names = tuple(entry["classes"])
        confusion = np.zeros((len(names), len(names)), np.int64)
        for row, column, images in entry["confusion"]:
            confusion[row, column] = images
        auc = np.array(entry["auc"], np.float64)  # null becomes nan
        for result in Evaluation(names, confusion, auc).by_class:
            shown = ["" if math.isnan(value) else f"{value:.6f}" for value in result.figures]
            lines.append([*place, result.name, result.images, *shown])
    return lines


def confusion_lines(done: Sequence[Done]) -> list[list[Any]]:
    """Return confusion.csv: a line for each entry of a confusion matrix that is not 0."""
    lines: list[list[Any]] = [[*PLACE, "true class", "predicted class", "images"]]
    for place, entry in _entries(done):
        names = entry["classes"]
        for row, column, images in entry["confusion"]:
            lines.append([*place, names[row], names[column], images])
    return lines


def _entries(done: Sequence[Done]) -> Iterator[tuple[list[Any], Mapping[str, Any]]]:
    """Yield, for each node in each test, the first cells of its lines and its packed results."""
    for ended in done:
        for test, nodes in ended.outcome.get("by_node", {}).items():
            for node in sorted(nodes):
                yield [*ended.cell.place, test, node], nodes[node]
