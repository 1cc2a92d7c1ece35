"""The scores of finished cells as CSV: written beside each table, and read to go on from there."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from fednode.errors import ConfigError
from fednode.lab.experiment.cells import Done, Outcome

COLUMNS: Final = ("method", "seed", "left out", "test", "node", "accuracy", "cell")
"""cell: the key of everything that the cell's outcome depends on."""


def lines(done: Sequence[Done]) -> list[list[Any]]:
    """Return the rows of scores.csv, the header first: one row for each test of each node."""
    rows = (
        [*ended.cell.place, test, node, f"{value:.6f}", ended.cell.key]
        for ended in done
        for test, node, value in ended.scores()
    )
    return [list(COLUMNS), *rows]


def read(path: Path) -> dict[str, Outcome]:
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
                nodes[row["node"]] = _accuracy(path, number, row["accuracy"])
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        raise ConfigError(f"{path} cannot be read: {fault}; name a scores.csv.") from fault
    return outcomes


def _accuracy(path: Path, number: int, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise ConfigError(
            f"{path}, line {number}: accuracy is {text!r}; it must be a number from 0 to 1."
        )
    return value
