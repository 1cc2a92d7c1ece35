"""A cell: one run of one method, with one seed and one domain left out; its job and its outcome.

The scores of finished cells are written as CSV beside each table, and read to go on from there.
Results by class are in a cell's file, classes.csv and confusion.csv; evaluation/results.py defines
their figures.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from fednode.errors import ConfigError
from fednode.evaluation.results import FIGURES, Evaluation
from fednode.lab.experiment.settings import MethodSettings

FOLDER: Final = "cells"
"""Folder of the cells' files in an experiment's folder."""
ELSEWHERE: Final = "folder with --out"
"""The advice if a folder of an experiment does not work."""
SHARE: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
Outcome = dict[str, Any]
"""The content of a cell's file."""
PLACE: Final = ("method", "seed", "left out", "test", "node")
"""The first columns of tables that are about nodes."""
COLUMNS: Final = (*PLACE, "accuracy", "cell")
"""cell: the key of everything that the cell's outcome depends on."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run to be made. key: of all that its outcome depends on."""

    method: MethodSettings
    seed: int
    target: str
    key: str

    @property
    def file(self) -> str:
        shown = "".join(letter if letter.isalnum() else "-" for letter in self.method.label.lower())
        parts = [shown, f"seed-{self.seed}", *([self.target] if self.target else []), self.key]
        return "_".join(parts) + ".json"

    def path(self, folder: Path) -> Path:
        return folder / FOLDER / self.file

    @property
    def place(self) -> list[Any]:
        """The first columns of a line in a CSV file: method, seed, domain left out."""
        return [self.method.label, self.seed, self.target]

    @property
    def title(self) -> str:
        return ", ".join([self.method.label, f"seed {self.seed}", *filter(None, [self.target])])


@dataclass(frozen=True, slots=True)
class Done:
    """A cell with its outcome. fault: why it has none. trace: of a defect.

    fresh: whether this command ran it.
    """

    cell: Cell
    outcome: Outcome
    fault: str = ""
    trace: str = ""
    fresh: bool = True

    def scores(self) -> Iterator[tuple[str, str, float]]:
        """Yield test, node and accuracy (0 to 1) of each test of each node."""
        for test, nodes in self.outcome.get("scores", {}).items():
            for node, accuracy in sorted(nodes.items()):
                yield test, node, accuracy

    @property
    def summary(self) -> str:
        """For people: the accuracies and the seconds, or why there are none."""
        if self.fault:
            return f"failed: {self.fault}"
        scores = self.outcome["scores"]
        shown = [f"{name} {100 * sum(v.values()) / len(v):.1f}" for name, v in scores.items()]
        return ", ".join(shown) + f" in {self.outcome['seconds']:.0f} s"


def score_lines(done: Sequence[Done]) -> list[list[Any]]:
    """Return the rows of scores.csv, the header first: one row for each test of each node."""
    rows = (
        [*ended.cell.place, test, node, f"{value:.6f}", ended.cell.key]
        for ended in done
        for test, node, value in ended.scores()
    )
    return [list(COLUMNS), *rows]


def read_scores(path: Path) -> dict[str, Outcome]:
    """Return the outcomes of a scores.csv by the cell's key; they hold scores and nothing else.

    Raise ConfigError if the file cannot be read or is not such a file.
    """
    outcomes: dict[str, Outcome] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            if tuple(rows.fieldnames or ()) != COLUMNS:
                named = ", ".join(rows.fieldnames or ()) or "none"
                raise ConfigError(
                    f"{path} has the columns {named}; --scores takes a scores.csv, which has the "
                    f"columns {', '.join(COLUMNS)}."
                )
            for number, row in enumerate(rows, 2):
                outcome = outcomes.setdefault(row["cell"], {"scores": {}, "seconds": 0.0})
                nodes = outcome["scores"].setdefault(row["test"], {})
                text = row["accuracy"] or ""
                nodes[row["node"]] = float(text) if SHARE.fullmatch(text) else -1.0
                if not 0.0 <= nodes[row["node"]] <= 1.0:
                    raise ConfigError(
                        f"{path}, line {number}: accuracy is {text!r}; it must be a number from 0 "
                        "to 1."
                    )
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        raise ConfigError(f"{path} cannot be read: {fault}; name a scores.csv.") from fault
    return outcomes


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
