"""Cells of an experiment as runs in a tracker: read its folder, and write each cell once."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fednode.data.base import BUILTIN
from fednode.errors import ConfigError
from fednode.lab.experiment.figures import mean
from fednode.lab.track.base import Plain, Run, flat
from fednode.lab.track.trackers import Shipped
from fednode.lab.track.writing import Patient, Say, Writer

CELLS: Final = "cells"
FOLDER: Final = "tracker"
REPORT: Final = "report.md"
TABLES: Final = (
    *(REPORT, "scores.csv", "curves.csv"),
    *("classes.md", "classes.csv", "confusion.csv", "curves.png"),
)
FAILED: Final = "## Cells that failed"
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
    setting, the folders of its values are read, too. Paths stay here: in settings, in a report's
    command, and in the faults of cells. out: where the tracker writes; None for folder/tracker.
    Raise ConfigError if the folder holds no cells.
    """
    cells, tables, digest = _found(folder, out)
    count, where = 0, ""
    for run, lines in cells:
        writer = Writer(tracker, patient, run)
        if writer.note.last < lines[-1][0]:
            async with writer:
                for step, values in lines:
                    await writer.log(step, values)
            count, where = count + 1, writer.where
    first, _ = cells[0]
    writer = Writer(tracker, patient, replace(first, name="tables", settings={}))
    if tables and writer.note.digest != digest:
        with tempfile.TemporaryDirectory() as copies:
            async with writer:
                await writer.tables(_told(tables, Path(copies)), digest)
        where = writer.where
    if where:
        say(where)
    say(f"{count} of {len(cells)} cells were written; the others were there from before.")


def _found(folder: Path, out: Path | None) -> tuple[list[Cell], list[Path], str]:
    """Return the cells in an experiment's folder, its tables, and a digest of the tables."""
    folder = folder.resolve()
    parts = [part for part in (folder, *sorted(folder.iterdir())) if (part / CELLS).is_dir()]
    cells = [cell for part in parts for cell in _cells(folder, part, out or folder / FOLDER)]
    if not cells:
        raise ConfigError(
            f"{folder} holds no finished cells: give the output folder of `fednode experiment` "
            "(runs/experiment-NAME), or the name or address of a node."
        )
    places = dict.fromkeys([folder, *parts])
    tables = [place / name for place in places for name in TABLES if (place / name).is_file()]
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in tables)).hexdigest()
    return cells, tables, digest


def _told(tables: Sequence[Path], copies: Path) -> list[Path]:
    """Return the tables as a tracker gets them: reports as copies without names of files."""
    told = []
    for number, path in enumerate(tables):
        if path.name == REPORT:
            text = _without_places(path.read_text("utf-8"))
            path = copies / str(number) / REPORT
            path.parent.mkdir()
            path.write_text(text, "utf-8")
        told.append(path)
    return told


def _without_places(report: str) -> str:
    """Return a report without its command and the faults of its cells, which may name files."""
    head, failed, rest = report.partition(FAILED)
    lines = [line for line in head.splitlines(keepends=True) if not line.startswith("`fednode ")]
    titles = re.sub(r"(?m)^(- .*?): .*$", r"\1", rest)
    return "".join([*lines, failed, titles])


def _cells(folder: Path, part: Path, out: Path) -> list[Cell]:
    """Return each finished cell of a folder: its run, and its figures by round."""
    experiment = dict((_read(part / "report.json") or {}).get("experiment", {}))
    methods = {chosen["label"]: chosen for chosen in experiment.pop("methods", ())}
    for name in ("seeds", "smoke", "cache"):
        experiment.pop(name, None)
    experiment |= {name: _words(dict(experiment.get(name, {}))) for name in ("data", "model")}
    cells = []
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
        cells.append((run, sorted(steps(outcome).items())))
    return cells


def _words(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings of images or of the model without paths; the words for both stay."""
    path, weights = settings.get("path"), settings.get("pretrained")
    hidden = {"path"} if path != BUILTIN else set()
    if weights and (Path(weights).suffix or Path(weights).name != weights):
        hidden.add("pretrained")
    return {key: setting for key, setting in settings.items() if key not in hidden}


def _read(file: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if there is none."""
    try:
        tree = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return tree if isinstance(tree, dict) else None


def steps(outcome: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Return the figures of a cell by round: accuracies (0..1, mean over nodes), loss, distance.

    The last round also has the bytes of the whole run, of all nodes, without greetings. A method
    that learns nothing has its accuracies at round 0.
    """
    last = int(outcome.get("rounds", 0))
    by_round: dict[int, dict[str, float]] = {last: {}}
    curve = {**outcome.get("curve", {}), str(last): outcome["scores"]}
    for number, scores in curve.items():
        means = {f"accuracy/{test}": mean(list(nodes.values())) for test, nodes in scores.items()}
        by_round.setdefault(int(number), {}).update(means)
    for name, shown in (("loss", "loss/training"), ("consensus", "consensus distance")):
        for number, value in enumerate(outcome.get(name, ()), 1):
            by_round.setdefault(number, {})[shown] = value
    for key in TOTALS if "bytes" in outcome else ():
        meters = [meter[key] for phase, meter in outcome["bytes"].items() if phase != "hello"]
        by_round[last][f"traffic/{key}"] = float(sum(meters))
    by_round[last]["seconds"] = float(outcome["seconds"])
    return by_round
