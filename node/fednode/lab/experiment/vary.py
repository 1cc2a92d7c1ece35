"""A table over the values of one setting: the same experiment once for each value.

`vary: {data.shots: [1, 2, 4, 8, 16]}` in an experiment's file is five experiments, one for each
number of shots. Each has a folder with all files of its own; above them stands one table, a row for
each method and a column for each value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fednode.core import foreign
from fednode.lab.experiment import scores
from fednode.lab.experiment.cells import ELSEWHERE, Done
from fednode.lab.experiment.figures import markdown_table, mean
from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.picture import Panel
from fednode.lab.experiment.settings import Experiment
from fednode.lab.experiment.table import Figure, rows
from fednode.storage.files import put
from fednode.terminal.formats import csv_table

Figures = Mapping[str, list[Figure | None]]
"""The shown figure of each method, by value; None where a cell is missing."""
MEAN: Final = "mean"
"""The last column: the mean of the columns before it, without a deviation."""
UNSAFE: Final = re.compile(r"[^0-9A-Za-z._-]+")


@dataclass(frozen=True, slots=True)
class Variant:
    """One value, the experiment with it, and the folder of its files."""

    value: Any
    experiment: Experiment
    folder: Path

    @property
    def title(self) -> str:
        """The value in the table's head: the last part of a path, the name of a model."""
        value = self.value.get("name") if isinstance(self.value, dict) else self.value
        if isinstance(value, list):
            return ", ".join(map(str, value))
        shown = value if isinstance(value, str) else json.dumps(value)
        return shown.rstrip("/").rpartition("/")[2]


def variants(
    found: Experiment, file: Path, smoke: bool, flags: Sequence[str], folder: Path
) -> list[Variant]:
    """Return one variant for each value of `vary`, or the experiment alone if it varies nothing.

    Raise ConfigError if a value is not allowed.
    """
    if not found.vary:
        return [Variant(None, found, folder)]
    ((key, values),) = found.vary.items()
    made = []
    for value in values:
        name = UNSAFE.sub("-", f"{key}={json.dumps(value)}").strip("-")
        one = load_experiment(file, smoke, [*flags, f"{key}={json.dumps(value)}"])
        made.append(Variant(value, one, folder / name))
    return made


def column(experiment: Experiment) -> str:
    """Return the column of each table that the table over all values shows."""
    return "new" if experiment.protocol.kind == "base-to-new" else "avg"


def write(
    found: Experiment,
    parts: Sequence[tuple[Variant, Sequence[Done]]],
    shown: Figures,
    folder: Path,
    command: str,
) -> Path:
    """Write the table over all values; return its path. Raise StateError where it cannot.

    shown: what figures() returns.
    """
    ((key, _),) = found.vary.items()
    head = ["method", *(variant.title for variant, _ in parts), MEAN]
    body = []
    for method in found.methods:
        cells = shown[method.label]
        known = [one.mean for one in cells if one is not None]
        whole = f"{mean(known):.1f}" if len(known) == len(cells) else "-"
        texts = ("-" if one is None else str(one) for one in cells)
        body.append([method.label, *texts, whole])
        said = [method.paper.get(name) for name in head[1:]]
        if any(one is not None for one in said):
            papers = ("-" if one is None else f"{one:g}" for one in said)
            body.append([f"{method.label} (paper)", *papers])
    seeds = ", ".join(map(str, found.seeds))
    lines = [
        f"# {foreign.markdown(found.title)}",
        "",
        f"`{command}`",
        "",
        f"Accuracy in percent (column {column(found)!r} of each table), by `{key}`; "
        f"{found.protocol.kind}, seeds {seeds}. The table of each value is in a folder beside this "
        "file.",
        "",
        *markdown_table(head, body),
        "",
    ]
    path = folder / "report.md"
    put(path, "\n".join(lines), ELSEWHERE)
    scored = [one for _, done in parts for one in done]
    put(folder / "scores.csv", csv_table(scores.lines(scored)), ELSEWHERE)
    return path


def panel(
    found: Experiment, parts: Sequence[tuple[Variant, Sequence[Done]]], shown: Figures
) -> Panel | None:
    """Return the curves over the values, a line for each method; None if a value is no number."""
    ((key, values),) = found.vary.items()
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in values):
        return None
    lines = {
        label: {
            variant.value: [one.mean]
            for (variant, _), one in zip(parts, cells, strict=True)
            if one is not None
        }
        for label, cells in shown.items()
    }
    return Panel(f"accuracy ({column(found)}) by {key}", lines)


def figures(parts: Sequence[tuple[Variant, Sequence[Done]]]) -> Figures:
    """Return the shown figure of each method for each value."""
    found: dict[str, list[Figure | None]] = {}
    for variant, done in parts:
        for row in rows(variant.experiment, done):
            one = row.figures.get(column(variant.experiment))
            found.setdefault(row.method.label, []).append(one)
    return found
