"""Results by class in an experiment: in a cell's file, classes.csv and confusion.csv.

node/fednode/evaluation/results.py defines the figures. Nodes that hold the same prompts have one
entry in a cell's file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fednode.evaluation.results import FIGURES, Evaluation
from fednode.lab.experiment.cells import PLACE, Done


def packed(results: Mapping[str, Mapping[str, Evaluation | None]]) -> dict[str, Any]:
    """Return results as JSON: by test, a list of the different results with their nodes.

    Tests without images are left out. confusion: [row, column, images] of each entry that is not 0.
    """
    tree: dict[str, Any] = {}
    for test, nodes in results.items():
        alike: dict[int, tuple[Evaluation, list[str]]] = {}
        for node, evaluation in nodes.items():
            if evaluation is not None:
                alike.setdefault(id(evaluation), (evaluation, []))[1].append(node)
        if not alike:
            continue
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
        for test, entries in ended.outcome.get("by_class", {}).items():
            by_node = {node: entry for entry in entries for node in entry["nodes"]}
            for node in sorted(by_node):
                yield [*ended.cell.place, test, node], by_node[node]
