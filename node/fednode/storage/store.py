"""The state directory: what a node has adopted, safe under kill -9 and power loss.

    lock                              held while a process uses the directory
    identity/                         the node's key; the revocations that it took
    checkpoints/NNNNNN.safetensors    the newest rounds (checkpoint.py)
    history.jsonl                     the figures of all rounds (history.py)
    privacy.json                      what was released, with the clip and noise of each release
    runs/1, runs/2, ...               runs under other settings, each a state directory of its own

A checkpoint is written aside, synced and renamed, and its folder is synced. The rename is the
commit point. A checkpoint that is not as it was written is reported and never used; the one before
is used instead. Only the owner can read the directory.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from fednode.core.facts import value_of
from fednode.core.types import Snapshot
from fednode.errors import StateError
from fednode.storage.checkpoint import Checkpoint, Damaged, encode, read
from fednode.storage.disk import ASIDE, Disk, earlier_files, explained, lock, refuse_earlier
from fednode.storage.history import History, RoundRow

CHECKPOINTS: Final = "checkpoints"
HISTORY: Final = "history.jsonl"
RUNS: Final = "runs"
SETTINGS: Final = "settings.yaml"
CLASSES: Final = "classes.txt"
CHECKPOINTS_KEPT: Final = 3
BACKBONE: Final = "backbone"
"""The key of the model's fingerprint, among the facts that a directory is tied to."""
POLICY: Final = "policy.name"
"""Named in place of all other settings: another policy has other settings."""
OWNERS: Final = ("mesh", "name")
"""Facts that say whose directory it is; no run changes them."""
WRITABLE: Final = "there is room and that this user may read and write there"
READABLE: Final = "this user may read there"
SHOWN: Final = 4
"""Most differences that a sentence names."""
_READ_TRIES: Final = 3


class Store:
    """One process's hold on a state directory.

    Calls block and may come from any thread. A call that fails raises StateError and leaves the
    store as it was, so that the same call may be repeated.

    warnings: sentences about damage that was found; `latest` adds to it.
    """

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        """Take the directory, and make it if needed; raise StateError if that fails."""
        self.folder = folder
        self.warnings: list[str] = []
        self._disk = disk or Disk()
        self._guard = threading.Lock()
        refuse_earlier(folder)
        with _explained(folder, "cannot be used"):
            self._disk.make_folder(folder)
            self._lock = lock(folder)
            try:
                self._disk.make_folder(folder / CHECKPOINTS)
                newest, _ = _newest(folder)
                self._facts = dict(newest.settings) if newest else {}
                number = newest.snapshot.policy.round if newest else -1
                self._history = History(folder / HISTORY, self._disk, number)
                self._disk.sync_path(folder)
            except BaseException:
                os.close(self._lock)
                raise
        if self._history.torn:
            text = f"the last line of {folder / HISTORY} is torn; the figures of its round are lost"
            self.warnings.append(text)
        for path in (*folder.glob(f"*{ASIDE}"), *folder.glob(f"*/*{ASIDE}")):  # left by a crash
            with contextlib.suppress(OSError):
                self._disk.remove(path)
        self._sweep(max(_rounds(folder), default=-1))

    def bind(self, facts: Mapping[str, str], free: Collection[str] = ()) -> str:
        """Tie the rounds to come to a configuration; return what `difference` says of the last."""
        self._facts = self._facts or dict(facts)
        return difference(self.folder, self._facts, facts, free)

    def begin_anew(self, facts: Mapping[str, str]) -> None:
        """Move the run so far to runs/N, and begin at round 0 under another configuration.

        The rename of the checkpoints' folder is the commit point. If a call fails, it may be
        repeated.
        """
        folder, disk = self.folder, self._disk
        with self._guard, _explained(self.folder, "cannot begin its rounds anew"):
            if _rounds(folder):
                past = earlier_runs(folder)
                run = folder / RUNS / str(int(past[-1].name) + 1 if past else 1)
                disk.make_folder(run)
                for name in (SETTINGS, CLASSES, HISTORY):
                    if (folder / name).is_file():
                        disk.replace(run / name, (folder / name).read_bytes())
                disk.sync_path(folder / RUNS)
                disk.sync_path(folder)
                disk.rename(folder / CHECKPOINTS, run / CHECKPOINTS)
                disk.sync_path(run)
            disk.make_folder(folder / CHECKPOINTS)
            disk.sync_path(folder)
            self._facts = dict(facts)
            self._history = History(folder / HISTORY, disk, -1)

    def commit(self, snapshot: Snapshot, traffic: Mapping[str, int] | None = None) -> None:
        """Make a snapshot durable. traffic: the node's counters, for the history of rounds.

        If a commit fails, the round before stays, and the same commit may be repeated.
        """
        policy = snapshot.policy
        row = RoundRow(
            policy.round, dict(snapshot.metrics), dict(traffic or {}), policy.tensors.digest
        )
        content = encode(Checkpoint(snapshot, self._facts))
        with self._guard, _explained(self.folder, f"cannot take round {policy.round}"):
            try:
                size = self._history.write(row)
                self._disk.replace(_path(self.folder, policy.round), content)
                self._history.adopt(policy.round, size)
            finally:
                self._sweep(self._history.newest)  # after an error, this removes the new round

    def latest(self) -> Snapshot | None:
        """Return the newest whole snapshot; None for a new directory.

        Add a warning for each damaged newer snapshot; raise StateError if none is whole.
        """
        with self._guard, _explained(self.folder, "cannot be used"):
            newest, damaged = _newest(self.folder)
        if newest is None:
            return None
        number = newest.snapshot.policy.round
        self.warnings += [f"{text}; going on from round {number}" for text in damaged]
        return newest.snapshot

    def history(self, since: int, limit: int) -> list[RoundRow]:
        """Return the figures of rounds from `since` on, oldest first."""
        with self._guard, _explained(self.folder, "cannot be read", READABLE):
            return self._history.rows(since, limit)

    def close(self) -> None:
        """Release the directory. Idempotent."""
        with self._guard:
            if self._lock >= 0:
                os.close(self._lock)
            self._lock = -1

    def _sweep(self, newest: int) -> None:
        """Remove all checkpoints but the newest ones, as far as the disk allows it.

        newest: a round; those after it go as well.
        """
        numbers = _rounds(self.folder)
        kept = [number for number in numbers if number <= newest][:CHECKPOINTS_KEPT]
        for number in [number for number in numbers if number not in kept]:
            with contextlib.suppress(OSError):
                self._disk.remove(_path(self.folder, number))


def _explained(
    folder: Path, what: str, sure: str = WRITABLE
) -> contextlib.AbstractContextManager[None]:
    """Turn an error of the disk into one sentence. sure: of what the user is to make sure."""
    return explained(f"The state directory {folder} {what}", f". Make sure that {sure}.")


def difference(
    folder: Path, held: Mapping[str, str], facts: Mapping[str, str], free: Collection[str]
) -> str:
    """Return how the configuration of a directory's last round, `held`, differs from a node's.

    "" if there is no round yet, or if only the facts `free` differ. Raise StateError if the
    directory is of another node or mesh.
    """
    every = {*held, *facts}.difference(free) if held else ()
    differ = [key for key in sorted(every) if held.get(key) != facts.get(key)]
    for key in OWNERS:
        if key in differ:
            raise StateError(
                f"The state directory {folder} was made with {key} {held.get(key)}, and this node "
                f"has {key} {facts.get(key)}: give this node's own directory with --state."
            )
    if POLICY in differ:
        differ = [POLICY]
    differ.sort(key=lambda key: key != BACKBONE)
    return "; ".join(
        f"{key} was {value_of(held, key)} and is {value_of(facts, key)}" for key in differ[:SHOWN]
    )


# For other processes: these take no lock and write nothing ----------------------------------------


def is_state(folder: Path) -> bool:
    """Tell whether a node ran in a directory, of this version or of an earlier one."""
    return (folder / CHECKPOINTS).is_dir() or bool(earlier_files(folder))


def has_rounds(folder: Path) -> bool:
    """Tell whether a directory has adopted a round after its beginning."""
    return any(_rounds(folder))


def earlier_runs(folder: Path) -> list[Path]:
    """Return the runs that a state directory keeps, oldest first."""
    runs = [path.parent for path in (folder / RUNS).glob(f"*/{CHECKPOINTS}")]
    return sorted((run for run in runs if run.name.isdecimal()), key=lambda run: int(run.name))


def newest(folder: Path) -> tuple[Checkpoint, tuple[str, ...]]:
    """Return the newest whole checkpoint of a directory that a running node may be using.

    Also return a sentence on each newer checkpoint, which is damaged. Raise StateError if no
    checkpoint is whole.
    """
    refuse_earlier(folder)
    if not is_state(folder):
        raise StateError(f"There is no state directory at {folder}: give that of a node that ran.")
    for _ in range(_READ_TRIES):  # a running node removes files that were listed
        with _explained(folder, "cannot be read", READABLE):
            found, damaged = _newest(folder)
        if found is not None:
            number = found.snapshot.policy.round
            return found, tuple(f"{text}; round {number} is used." for text in damaged)
    raise StateError(
        f"The node of the state directory {folder} has not adopted a round yet: let it finish one."
    )


def _newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest whole checkpoint, and sentences on damaged newer ones.

    None if there is no checkpoint. Raise StateError if all of them are damaged, and OSError if the
    system does not give one of them: then nobody knows whether it is sound.
    """
    damaged: list[str] = []
    for number in _rounds(folder):
        path = _path(folder, number)
        try:
            return read(path), damaged
        except Damaged as fault:
            damaged.append(f"round {number} is damaged: {path} {fault}")
        except FileNotFoundError:
            pass
    if damaged:
        raise StateError(
            f"The state directory {folder} is damaged: {'; '.join(damaged)}. Restore it from a "
            "backup, or use another directory to begin at round 1."
        )
    return None, []


def _rounds(folder: Path) -> list[int]:
    """Return the rounds that have a file, newest first."""
    files = (folder / CHECKPOINTS).glob("*.safetensors")
    return sorted((int(path.stem) for path in files if path.stem.isdecimal()), reverse=True)


def _path(folder: Path, number: int) -> Path:
    return folder / CHECKPOINTS / f"{number:06d}.safetensors"
