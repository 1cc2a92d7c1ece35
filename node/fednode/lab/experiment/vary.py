"""A table over the values of one setting: the same experiment once for each value.

`vary: {data.shots: [1, 2, 4, 8, 16]}` in an experiment's file is five experiments, one for each
number of shots. Each has a folder with all files of its own; above them stands one table, a row for
each method and a column for each value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fednode.core import foreign
from fednode.lab.experiment.cells import ELSEWHERE, Done, score_lines
from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.settings import Experiment
from fednode.lab.experiment.table import markdown_table, mean, rows
from fednode.storage.disk import put
from fednode.terminal.options import csv_table

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


def write(
    experiment: Experiment,
    parts: Sequence[tuple[Variant, Sequence[Done]]],
    folder: Path,
    command: str,
) -> Path:
    """Write the table over all values; return its path. Raise StateError where it cannot."""
    ((key, _),) = experiment.vary.items()
    column = "new" if experiment.protocol.kind == "base-to-new" else "avg"
    tables = [rows(variant.experiment, done) for variant, done in parts]
    head = ["method", *(variant.title for variant, _ in parts), MEAN]
    body = []
    for at, method in enumerate(experiment.methods):
        figures = [table[at].figures.get(column) for table in tables]
        known = [figure.mean for figure in figures if figure is not None]
        whole = f"{mean(known):.1f}" if len(known) == len(figures) else "-"
        body.append([method.label, *(str(figure or "-") for figure in figures), whole])
        if any(name in method.paper for name in head[1:]):
            papers = (
                f"{method.paper[name]:g}" if name in method.paper else "-" for name in head[1:]
            )
            body.append([f"{method.label} (paper)", *papers])
    seeds = ", ".join(map(str, experiment.seeds))
    lines = [
        f"# {foreign.markdown(experiment.title)}",
        "",
        f"`{command}`",
        "",
        f"Accuracy in percent (column {column!r} of each table), by `{key}`; "
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
