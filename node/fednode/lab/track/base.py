"""What an experiment tracker is told, and what each tracker promises.

A *tracker* is a program of others that keeps the figures of runs and draws them. A *run* is one
node, or one cell of an experiment.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

Plain = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a tracker is told at the beginning of a run.

    Attributes:
        name: for people, unique in its group
        group: the mesh or the experiment that the run belongs to
        settings: by dotted name
        folder: where a tracker without an address writes, common to all runs of a group
    """

    name: str
    group: str
    folder: Path
    settings: Mapping[str, Plain] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """The name as a part of a path."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).strip("-.") or "run"


class Tracker(Protocol):
    """A run in a tracker, from its construction until `close`.

    All calls come from one thread. They may block or raise anything: writing.py bounds them. A run
    of the same name, group and folder continues: its figures come after those that are there.
    """

    def __init__(self, run: Run) -> None:
        """Begin or continue a run."""
        ...

    @property
    def where(self) -> str:
        """A phrase that says where a person finds the run."""
        ...

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take figures of a step (a round), all finite. Steps of a run increase."""
        ...

    def table(self, path: Path) -> None:
        """Take a file with a table or a report. A later file of the same name replaces it."""
        ...

    def close(self) -> None:
        """End the run; everything that was taken is kept. Idempotent."""
        ...


def finite(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers among values, by name."""
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Plain]:
    """Return the leaves of a tree by dotted names; values of other types become text."""
    leaves: dict[str, Plain] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            leaves |= flat(value, f"{above}{key}.")
        else:
            plain = value is None or isinstance(value, str | int | float | bool)
            leaves[f"{above}{key}"] = value if plain else str(value)
    return leaves


def kept_id(run: Run, tracker: str) -> str:
    """Return the id of a run in a tracker; the same one when the run continues."""
    file = run.folder / "ids" / f"{tracker}-{run.slug}"
    try:
        return file.read_text("utf-8").strip()
    except FileNotFoundError:
        return keep_id(run, tracker, uuid.uuid4().hex)


def keep_id(run: Run, tracker: str, chosen: str) -> str:
    """Write down the id of a run that begins in a tracker, and return it."""
    file = run.folder / "ids" / f"{tracker}-{run.slug}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(chosen, "utf-8")
    forget(run, tracker)
    return chosen


def note_file(run: Run, tracker: str) -> Path:
    """Return the file that names the last round that a tracker took of a run."""
    return run.folder / "ids" / f"{tracker}-{run.slug}.json"


def forget(run: Run, tracker: str) -> None:
    """Note that a tracker holds no round of a run, because the run begins."""
    note_file(run, tracker).unlink(missing_ok=True)
