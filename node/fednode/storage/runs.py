"""Runs under other settings: each lies in runs/1, runs/2, ... as a state directory of its own.

    fednode predict --state DIR/runs/1    and `eval`, `export` and `explain` read it as any other

The copy is complete and durable before the journal forgets the run. A crash in between leaves both;
the next attempt finds the copy and uses it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from fednode.storage.disk import Disk
from fednode.storage.journal import ROUNDS_KEPT, Journal

RUNS: Final = "runs"
SUFFIX: Final = ".safetensors"
SETTINGS: Final = "settings.yaml"
CLASSES: Final = "classes.txt"
ASIDE: Final = "new"
"""The copy's name while it is written."""


def kept(folder: Path) -> list[Path]:
    """Return the runs that a state directory keeps, oldest first."""
    folders = [run for run in (folder / RUNS).glob("*") if run.name.isdecimal()]
    return sorted(folders, key=lambda run: int(run.name))


def keep(folder: Path, journal: Journal, disk: Disk) -> None:
    """Copy what the node has run so far into runs/N, unless it has run nothing, or is kept already.

    Raise OSError or sqlite3.Error if that fails; the same call may be repeated.
    """
    rows = journal.snapshots()
    if not any(row.round for row in rows):
        return
    past = kept(folder)
    if past and _newest(past[-1]) == rows[0].digest:
        return
    aside = folder / RUNS / ASIDE
    disk.make_folder(aside / "tensors")
    names = {f"{row.digest}{SUFFIX}" for row in rows}
    for old in (*(aside / "tensors").iterdir(), *aside.glob("journal.db*")):
        disk.remove(old)
    _copy(disk, folder, aside, (SETTINGS, CLASSES))
    _copy(disk, folder / "tensors", aside / "tensors", sorted(names))
    os.close(disk.create(aside / "journal.db"))
    fresh = Journal.open(aside / "journal.db", disk)
    try:
        fresh.fill(journal.settings(), rows, journal.history(0, ROUNDS_KEPT))
    finally:
        fresh.close()
    disk.sync_path(aside / "journal.db")
    disk.sync_path(aside)
    disk.rename(aside, folder / RUNS / str(int(past[-1].name) + 1 if past else 1))
    disk.sync_path(folder / RUNS)
    disk.sync_path(folder)


def _copy(disk: Disk, old: Path, new: Path, names: tuple[str, ...] | list[str]) -> None:
    """Copy files; a file that is not there, such as that of a damaged round, is left out."""
    for name in names:
        if (old / name).is_file():
            disk.replace(new / name, (old / name).read_bytes())


def _newest(folder: Path) -> str:
    """Return the digest of a kept run's newest snapshot; "" if it has none."""
    journal = Journal.look(folder / "journal.db")
    try:
        rows = journal.snapshots()
    finally:
        journal.close()
    return rows[0].digest if rows else ""
