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
from fednode.lab.experiment.cells import ELSEWHERE, Done, score_lines
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
    experiment: Experiment, file: Path, smoke: bool, flags: Sequence[str], folder: Path
) -> list[Variant]:
    """Return one variant for each value of `vary`, or the experiment alone if it varies nothing.

    Raise ConfigError if a value is not allowed.
    """
    if not experiment.vary:
        return [Variant(None, experiment, folder)]
    ((key, values),) = experiment.vary.items()
    made = []
    for value in values:
        name = UNSAFE.sub("-", f"{key}={json.dumps(value)}").strip("-")
        variant = load_experiment(file, smoke, [*flags, f"{key}={json.dumps(value)}"])
        made.append(Variant(value, variant, folder / name))
    return made


def column(experiment: Experiment) -> str:
    """Return the column of each table that the table over all values shows."""
    return "new" if experiment.protocol.kind == "base-to-new" else "avg"


def write(
    experiment: Experiment,
    parts: Sequence[tuple[Variant, Sequence[Done]]],
    shown: Figures,
    folder: Path,
    command: str,
) -> Path:
    """Write the table over all values; return its path. Raise StateError where it cannot.

    shown: what figures() returns.
    """
    ((key, _),) = experiment.vary.items()
    head = ["method", *(variant.title for variant, _ in parts), MEAN]
    body = []
    for method in experiment.methods:
        cells = shown[method.label]
        known = [figure.mean for figure in cells if figure is not None]
        whole = f"{mean(known):.1f}" if len(known) == len(cells) else "-"
        texts = ("-" if figure is None else str(figure) for figure in cells)
        body.append([method.label, *texts, whole])
        said = [method.paper.get(name) for name in head[1:]]
        if any(figure is not None for figure in said):
            papers = ("-" if figure is None else f"{figure:g}" for figure in said)
            body.append([f"{method.label} (paper)", *papers])
    seeds = ", ".join(map(str, experiment.seeds))
    lines = [
        f"# {foreign.markdown(experiment.title)}",
        "",
        f"`{command}`",
        "",
        f"Accuracy in percent (column {column(experiment)!r} of each table), by `{key}`; "
        f"{experiment.protocol.kind}, seeds {seeds}. The table of each value is in a folder beside "
        "this file.",
        "",
        *markdown_table(head, body),
        "",
    ]
    path = folder / "report.md"
    put(path, "\n".join(lines), ELSEWHERE, for_all=True)
    scored = [ended for _, done in parts for ended in done]
    put(folder / "scores.csv", csv_table(score_lines(scored)), ELSEWHERE, for_all=True)
    return path


def panel(
    experiment: Experiment, parts: Sequence[tuple[Variant, Sequence[Done]]], shown: Figures
) -> Panel | None:
    """Return the curves over the values, a line for each method; None if a value is no number."""
    ((key, values),) = experiment.vary.items()
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        return None
    lines = {
        label: {
            variant.value: [figure.mean]
            for (variant, _), figure in zip(parts, cells, strict=True)
            if figure is not None
        }
        for label, cells in shown.items()
    }
    return Panel(f"accuracy ({column(experiment)}) by {key}", lines)


def figures(parts: Sequence[tuple[Variant, Sequence[Done]]]) -> Figures:
    by_method: dict[str, list[Figure | None]] = {}
    for variant, done in parts:
        for row in rows(variant.experiment, done):
            figure = row.figures.get(column(variant.experiment))
            by_method.setdefault(row.method.label, []).append(figure)
    return by_method
