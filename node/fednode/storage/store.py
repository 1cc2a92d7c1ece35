"""The state directory: what a node has adopted, safe under kill -9 and power loss.

    lock                    held while a process uses the directory
    identity/               the node's key; the revocations and successions that it took
    journal.db              SQLite: a row for each adopted round
    privacy.json            what was released, with the clip and noise of each release
    tensors/*.safetensors   named by digest; written aside, synced, renamed, folder synced
    runs/1, runs/2, ...     runs before the present one (runs.py)

The journal's row that names a tensor file is the commit point. A crash before it leaves the round
before; a crash after it leaves the new round. A file that does not match its digest is reported and
never used; the newest whole round is used instead. Only the owner can read the directory.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import safetensors
import safetensors.numpy

from fednode.core.types import Snapshot, Tensors
from fednode.errors import StateError
from fednode.storage.disk import DAMAGED, FILE_MODE, Disk, because, lock
from fednode.storage.journal import SNAPSHOTS_KEPT, Journal, RoundRow, SnapshotRow
from fednode.storage.rows import body_of, joined, split
from fednode.storage.runs import SUFFIX, keep

BACKBONE: Final = "backbone"
"""The key of the model's fingerprint, among the facts that a directory is tied to."""
POLICY: Final = "policy.name"
"""Named in place of all other settings: another policy has other settings."""
OWNERS: Final = ("mesh", "name")
"""Facts that say whose directory it is; no run changes them."""
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
        with self._explained("cannot be used"):
            self._disk.make_folder(folder)
            self._disk.make_folder(folder / "tensors")
            self._lock = lock(folder)
        try:
            with self._explained("cannot be used"):
                self._journal = self._open_journal()
        except BaseException:
            os.close(self._lock)
            raise
        with contextlib.suppress(sqlite3.Error, OSError):  # what is swept takes space, no more
            self._sweep()

    def bind(self, facts: Mapping[str, str], free: Collection[str] = ()) -> str:
        """Tie a new directory to a configuration; return how a later one differs, in words.

        "" if only free facts differ. Raise StateError if the directory is of another node or mesh.

        free: names of facts that may differ.
        """
        with self._guard, self._explained("cannot be used"):
            held = self._journal.settings()
            if not held:
                self._journal.set_settings(facts)
        every = {*held, *facts}.difference(free) if held else set()
        differ = [key for key in sorted(every) if held.get(key) != facts.get(key)]
        for key in OWNERS:
            if key in differ:
                raise StateError(
                    f"The state directory {self.folder} was made with {key} {held.get(key)}, and "
                    f"this node has {key} {facts.get(key)}: give this node's own directory with "
                    "--state."
                )
        if POLICY in differ:
            differ = [POLICY]
        differ.sort(key=lambda key: key != BACKBONE)
        return "; ".join(
            f"{key} was {_shown(held, key)} and is {_shown(facts, key)}" for key in differ[:SHOWN]
        )

    def begin_anew(self, facts: Mapping[str, str]) -> None:
        """Keep the run so far in runs/N, and begin at round 0 under another configuration.

        If that fails, the run stays, and the same call may be repeated.
        """
        with self._guard, self._explained("cannot begin its rounds anew"):
            keep(self.folder, self._journal, self._disk)
            self._journal.begin_anew(facts)

    def commit(self, snapshot: Snapshot, traffic: Mapping[str, int] | None = None) -> None:
        """Make a snapshot durable. traffic: the node's counters, for the history of rounds.

        If a commit fails, the round before stays, and the same commit may be repeated.
        """
        policy = snapshot.policy
        together = joined(snapshot)
        body = body_of(snapshot)
        row = RoundRow(
            policy.round, dict(snapshot.metrics), dict(traffic or {}), policy.tensors.digest
        )
        data = safetensors.numpy.save(dict(together.items()))
        with self._guard, self._explained(f"cannot take round {policy.round}"):
            try:
                self._disk.replace(self._path(together.digest), data)
                self._journal.add(SnapshotRow(policy.round, together.digest, body), row)
            finally:
                # After an error this removes the file written aside; the disk may be full.
                with contextlib.suppress(sqlite3.Error):
                    self._sweep()

    def latest(self) -> Snapshot | None:
        """Return the newest whole snapshot; None for a new directory.

        Add a warning for each damaged newer snapshot; raise StateError if none is whole.
        """
        with self._guard, self._explained("cannot be used"):
            snapshot, row, damaged = _newest(self._journal, self.folder)
        if snapshot is None or row is None:
            if damaged:
                raise StateError(
                    f"The state directory {self.folder} is damaged: {'; '.join(damaged)}. Restore "
                    "it from a backup, or use another directory to begin at round 1."
                )
            return None
        self.warnings += [f"{text}; going on from round {row.round}" for text in damaged]
        return snapshot

    def history(self, since: int, limit: int) -> list[RoundRow]:
        """Return the figures of rounds from `since` on, oldest first."""
        with self._guard, self._explained("cannot be read"):
            return self._journal.history(since, limit)

    def close(self) -> None:
        """Release the directory. Idempotent."""
        with self._guard:
            self._journal.close()
            if self._lock >= 0:
                os.close(self._lock)
            self._lock = -1

    def _open_journal(self) -> Journal:
        path = self.folder / "journal.db"
        if not path.exists() and any((self.folder / "tensors").glob(f"*{SUFFIX}")):
            raise StateError(
                f"The state directory {self.folder} holds tensors but no journal.db: restore that "
                "file from a backup, or use another directory to begin at round 1."
            )
        # SQLite gives its other files the mode of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE))
        self._disk.sync_path(self.folder)
        return Journal.open(path, self._disk)

    def _sweep(self) -> None:
        """Remove tensor files that no snapshot names; a file that cannot be removed stays."""
        wanted = {f"{digest}{SUFFIX}" for digest in self._journal.digests()}
        folder = self.folder / "tensors"
        for name in sorted(os.listdir(folder)):
            if name.endswith((SUFFIX, f"{SUFFIX}.new")) and name not in wanted:
                with contextlib.suppress(OSError):
                    self._disk.remove(folder / name)

    def _path(self, digest: str) -> Path:
        return self.folder / "tensors" / f"{digest}{SUFFIX}"

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Turn an error of the disk into one sentence."""
        try:
            yield
        except (OSError, sqlite3.Error) as fault:
            raise StateError(
                f"The state directory {self.folder} {what}: {because(fault)}. "
                f"{_advice(fault, self.folder)}"
            ) from fault


def _advice(fault: OSError | sqlite3.Error, folder: Path) -> str:
    if because(fault) == DAMAGED:
        return (
            "Without it the rounds that are stored there cannot be found. The node's next start "
            "goes on from the newest round that is whole."
        )
    return "Make sure that there is room and that this user may write there."


def _shown(facts: Mapping[str, str], key: str) -> str:
    value = facts.get(key, "not set")
    return value[:12] if len(value) == 64 else value  # a digest


def require_model(folder: Path, was: str, now: str) -> None:
    """Raise StateError if a directory was tuned with another model than the loaded model.

    was, now: the fingerprints of both models; "" if a fingerprint is not known.
    """
    if was and now and was != now:
        raise StateError(
            f"The state directory {folder} was tuned with another model, or another "
            f"version of it (fingerprint {was[:12]}), than this node has ({now[:12]}). Prompts "
            "fit only the model that they were tuned with: give another directory with "
            f"--state, or move {folder} away, and the node begins at round 1."
        )


def read_model(folder: Path) -> str:
    """Return the fingerprint of the model that a directory was tuned with; "" if none is known.

    It takes no lock and writes nothing. Raise StateError if the directory cannot be read.
    """
    with _looking(folder / "journal.db") as journal:
        return journal.settings().get(BACKBONE, "")


def has_rounds(folder: Path) -> bool:
    """Tell whether a directory has adopted a round after its beginning.

    It takes no lock and writes nothing. Raise StateError if the directory cannot be read.
    """
    path = folder / "journal.db"
    if not path.is_file():
        return False
    with _looking(path) as journal:
        return any(row.round > 0 for row in journal.snapshots())


def newest(folder: Path) -> tuple[Snapshot, tuple[str, ...]]:
    """Return the newest whole snapshot of a directory that a running node may be using.

    Also return a sentence on each newer snapshot, which is damaged. It takes no lock and writes
    nothing. Raise StateError if there is no whole snapshot.
    """
    path = folder / "journal.db"
    if not path.is_file():
        raise StateError(f"There is no state directory at {folder}: give that of a node that ran.")
    damaged: list[str] = []
    # A running node may remove a file after its row was read and before the file is.
    for _ in range(_READ_TRIES):
        with _looking(path) as journal:
            snapshot, row, damaged = _newest(journal, folder)
        if snapshot is not None and row is not None:
            return snapshot, tuple(f"{text}; round {row.round} is used." for text in damaged)
    if damaged:
        raise StateError(f"The state directory {folder} is damaged: {'; '.join(damaged)}.")
    raise StateError(
        f"The node of the state directory {folder} has not adopted a round yet: let it finish one."
    )


def read_snapshot(folder: Path) -> Snapshot:
    """Return the snapshot that `newest` returns."""
    return newest(folder)[0]


@contextlib.contextmanager
def _looking(path: Path) -> Iterator[Journal]:
    """Open a journal that a running node may be using; raise StateError if it cannot be read."""
    try:
        with contextlib.closing(Journal.look(path)) as journal:
            yield journal
    except sqlite3.Error as fault:
        advice = f" {_advice(fault, path.parent)}" if because(fault) == DAMAGED else ""
        raise StateError(f"The journal {path} cannot be read: {because(fault)}.{advice}") from fault


def _newest(
    journal: Journal, folder: Path
) -> tuple[Snapshot | None, SnapshotRow | None, list[str]]:
    """Return the newest whole snapshot with its row, and sentences on damaged newer snapshots."""
    damaged: list[str] = []
    for row in journal.snapshots()[:SNAPSHOTS_KEPT]:
        path = folder / "tensors" / f"{row.digest}{SUFFIX}"
        if not row.sound:
            damaged.append(f"round {row.round} is damaged: its row in {folder / 'journal.db'}")
            continue
        tensors, fault = _read(path, row.digest)
        if not fault:
            return split(row, tensors), row, damaged
        damaged.append(f"round {row.round} is damaged: {path} {fault}")
    return None, None, damaged


def tensors_fault(folder: Path, digest: str) -> str:
    """Return what is wrong with the tensor file of a snapshot; "" for nothing."""
    return _read(folder / "tensors" / f"{digest}{SUFFIX}", digest)[1]


def _read(path: Path, digest: str) -> tuple[Tensors, str]:
    """Return the tensors in a file, and what is wrong with it ("" for nothing)."""
    try:
        tensors = Tensors(safetensors.numpy.load(path.read_bytes()))
    except FileNotFoundError:
        return Tensors(), "is missing"
    except OSError as fault:
        return Tensors(), f"cannot be read ({because(fault)})"
    except Exception as fault:  # whatever a parser raises for foreign bytes
        return Tensors(), f"is no safetensors file ({type(fault).__name__})"
    return tensors, "" if tensors.digest == digest else "does not match its digest"
