"""A cell: one run of one method, with one seed and one domain left out; its job and its outcome."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fednode.lab.experiment.settings import Experiment, MethodSettings

FOLDER: Final = "cells"
"""Folder of the cells' files in an experiment's folder."""
ELSEWHERE: Final = "folder with --out"
"""The advice if a folder of an experiment does not work."""
Outcome = dict[str, Any]
"""The content of a cell's file."""


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

    @property
    def place(self) -> list[Any]:
        """The first columns of a line in a CSV file: method, seed, domain left out."""
        return [self.method.label, self.seed, self.target]

    @property
    def title(self) -> str:
        return ", ".join([self.method.label, f"seed {self.seed}", *filter(None, [self.target])])


@dataclass(frozen=True, slots=True)
class Done:
    """A cell with its outcome. fault: why it has none. fresh: whether this command ran it."""

    cell: Cell
    outcome: Outcome
    fault: str = ""
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


@dataclass(frozen=True, slots=True)
class Job:
    """A cell, its experiment, and the folder of the experiment's files."""

    experiment: Experiment
    cell: Cell
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / FOLDER / self.cell.file
