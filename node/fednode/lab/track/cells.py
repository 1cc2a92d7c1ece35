"""Cells of an experiment as runs in a tracker: read its folder, and write each cell once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fednode.errors import ConfigError
from fednode.lab.experiment.figures import mean
from fednode.lab.track.base import Plain, Run, flat
from fednode.lab.track.trackers import Shipped
from fednode.lab.track.writing import Patient, Say, Writer

CELLS: Final = "cells"
FOLDER: Final = "tracker"
TABLES: Final = (
    *("report.md", "scores.csv", "curves.csv", "report.json"),
    *("classes.md", "classes.csv", "confusion.csv", "curves.png"),
)
Line = tuple[int, dict[str, float]]
"""A round, and its figures."""
Cell = tuple[Run, list[Line]]
"""A cell's run, and its figures by round."""
TOTALS: Final = ("messages", "payload", "serialized", "wire")


async def track(
    folder: Path, tracker: Shipped, patient: Patient, say: Say, out: Path | None = None
) -> None:
    """Write each finished cell as a run, and the tables as a run named `tables`.

    Cells and tables that the tracker holds already are left out. Where an experiment varies a
    setting, the folders of its values are read, too. out: where the tracker writes; None for
    folder/tracker. Raise ConfigError if the folder holds no cells.
    """
    found, tables, digest = _found(folder, out)
    count, where = 0, ""
    for run, lines in found:
        writer = Writer(tracker, patient, run)
        if writer.note.last < lines[-1][0]:
            async with writer:
                for step, values in lines:
                    await writer.log(step, values)
            count, where = count + 1, writer.where
    first, _ = found[0]
    writer = Writer(tracker, patient, replace(first, name="tables", settings={}))
    if tables and writer.note.digest != digest:
        async with writer:
            await writer.tables(tables, digest)
        where = writer.where
    if where:
        say(where)
    say(f"{count} of {len(found)} cells were written; the others were there from before.")


def _found(folder: Path, out: Path | None) -> tuple[list[Cell], list[Path], str]:
    """Return the cells in an experiment's folder, its tables, and a digest of the tables."""
    folder = folder.resolve()
    parts = [one for one in (folder, *sorted(folder.iterdir())) if (one / CELLS).is_dir()]
    found = [cell for part in parts for cell in _cells(folder, part, out or folder / FOLDER)]
    if not found:
        raise ConfigError(
            f"{folder} holds no finished cells: give the output folder of `fednode experiment` "
            "(runs/experiment-NAME), or the name or address of a node."
        )
    places = dict.fromkeys([folder, *parts])
    tables = [one / name for one in places for name in TABLES if (one / name).is_file()]
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in tables)).hexdigest()
    return found, tables, digest


def _cells(folder: Path, part: Path, out: Path) -> list[Cell]:
    """Return each finished cell of a folder: its run, and its figures by round."""
    experiment = dict((_read(part / "report.json") or {}).get("experiment", {}))
    methods = {one["label"]: one for one in experiment.pop("methods", ())}
    for name in ("seeds", "smoke", "cache"):
        experiment.pop(name, None)
    found = []
    for file in sorted((part / CELLS).glob("*.json")):
        outcome = _read(file)
        if outcome is None or "scores" not in outcome:  # another process may be writing it
            continue
        method = methods.get(outcome["method"], {"label": outcome["method"]})
        settings: dict[str, Plain] = {**flat(experiment), **flat({"method": method})}
        settings |= {"seed": outcome["seed"], "left out": outcome["target"]}
        # The file's name ends with the cell's key, so a cell of other settings is another run.
        name = " ".join([*part.relative_to(folder).parts, file.stem])
        run = Run(name=name, group=folder.name, folder=out, settings=settings)
        found.append((run, sorted(steps(outcome).items())))
    return found


def _read(file: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if there is none."""
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def steps(outcome: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Return the figures of a cell by round: accuracies (0..1, mean over nodes), loss, distance.

    The last round also has the bytes of the whole run, of all nodes, without greetings. A method
    that learns nothing has its accuracies at round 0.
    """
    last = int(outcome.get("rounds", 0))
    found: dict[int, dict[str, float]] = {last: {}}
    curve = {**outcome.get("curve", {}), str(last): outcome["scores"]}
    for number, scores in curve.items():
        means = {f"accuracy/{test}": mean(list(nodes.values())) for test, nodes in scores.items()}
        found.setdefault(int(number), {}).update(means)
    for name, shown in (("loss", "loss/training"), ("consensus", "consensus distance")):
        for number, value in enumerate(outcome.get(name, ()), 1):
            found.setdefault(number, {})[shown] = value
    for key in TOTALS if "bytes" in outcome else ():
        meters = [one[key] for phase, one in outcome["bytes"].items() if phase != "hello"]
        found[last][f"traffic/{key}"] = float(sum(meters))
    found[last]["seconds"] = float(outcome["seconds"])
    return found
