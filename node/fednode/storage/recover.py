"""Rebuild a damaged journal from what can still be read: the rounds whose row and file are whole.

Rows are read with SQLite as far as it gets. Rows of snapshots are also looked for in the bytes of
the file, because one damaged page can hide sound ones. Each row has a checksum over its round, so
nothing is taken that was not written.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from fednode.errors import StateError
from fednode.storage.disk import DAMAGED, Disk, because, lock
from fednode.storage.journal import SNAPSHOTS_KEPT, Journal, RoundRow, SnapshotRow, checksum_of
from fednode.storage.store import Store, tensors_fault

ASIDE: Final = ".damaged"
ROUND_MAX: Final = 200_000
"""The last round that is tried for a row that is found in the bytes of a file."""
_ROW: Final = re.compile(rb'([0-9a-f]{64})(\{"best_round".{,65536}?\})([0-9a-f]{64})', re.DOTALL)


def opened(folder: Path) -> Store:
    """Take a state directory, and make it if needed; rebuild its journal first if it is damaged.

    A rebuilt journal is a warning of the store. Raise StateError if the directory cannot be used.
    """
    try:
        return Store(folder)
    except StateError as fault:
        cause = fault.__cause__
        if not isinstance(cause, sqlite3.Error) or because(cause) != DAMAGED:
            raise
    number, lost = recover(folder)
    store = Store(folder)
    more = "" if not lost else f", and {lost} newer round{' is' if lost == 1 else 's are'} lost"
    store.warnings.append(
        f"{folder / 'journal.db'} was damaged and is now journal.db{ASIDE}; going on from round "
        f"{number}{more}"
    )
    return store


def recover(folder: Path) -> tuple[int, int]:
    """Rebuild a damaged journal; return the newest whole round, and how many newer ones are lost.

    The damaged files stay beside the new one, with ".damaged" after their names. Raise StateError
    if a node runs on the directory, or if no round is whole.
    """
    path = folder / "journal.db"
    held = lock(folder)
    try:
        scanned = list(_scanned(path))  # before SQLite touches the file
        by_round = {row.round: row for row in (*scanned, *_snapshots(path))}
        whole = [row for row in by_round.values() if not tensors_fault(folder, row.digest)]
        if not whole:
            raise StateError(
                f"No round in {path} is whole: restore {folder} from a backup, or move it away, "
                "and the node begins at round 1."
            )
        whole = sorted(whole, key=lambda row: row.round)
        whole = [row for row in whole if row in whole[-SNAPSHOTS_KEPT:] or not row.round]
        newest = whole[-1].round
        rounds = _rounds(path)
        last = max([*by_round, *(row.round for row in rounds)])
        past = [row for row in rounds if row.round <= newest]
        _replace(path, _settings(path), whole, past)
    finally:
        os.close(held)
    return newest, last - newest


def _replace(
    path: Path, settings: dict[str, str], snapshots: list[SnapshotRow], rounds: list[RoundRow]
) -> None:
    """Write a new journal aside, move the damaged files away, and put the new one in place."""
    fresh = path.with_name("journal.db.new")
    try:
        fresh.unlink(missing_ok=True)
        journal = Journal.open(fresh, Disk())
        try:
            journal.fill(settings, snapshots, rounds)
        finally:
            journal.close()
        for suffix in ("-wal", "-shm", ""):
            old = path.with_name(path.name + suffix)
            if old.exists():
                os.replace(old, old.with_name(old.name + ASIDE))
        os.replace(fresh, path)
        Disk().sync_path(path.parent)
    except (OSError, sqlite3.Error) as fault:
        raise StateError(f"{path} cannot be rebuilt: {because(fault)}.") from fault


def _read(path: Path, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query until SQLite meets the damage."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(_raw(path)) as rows:
        yield from rows.execute(query)


def _raw(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def _settings(path: Path) -> dict[str, str]:
    """Return the settings that the directory was made for; the next start writes what is lost."""
    settings = dict(_read(path, "select key, value from settings"))
    with contextlib.suppress(sqlite3.Error), contextlib.closing(_raw(path)) as rows:
        count = rows.execute("select count(*) from settings").fetchone()[0]
        return settings if count == len(settings) else {}
    return {}


def _snapshots(path: Path) -> Iterator[SnapshotRow]:
    """Yield the sound rows of snapshots, from either end of the table."""
    for order in ("desc", "asc"):
        query = f"select round, digest, body, checksum from snapshots order by round {order}"
        for number, digest, body, checksum in _read(path, query):
            if checksum == checksum_of(number, digest, body):
                yield SnapshotRow(number, digest, json.loads(body))


def _scanned(path: Path) -> Iterator[SnapshotRow]:
    """Yield the sound rows of snapshots in the bytes of the journal and of its log."""
    for file in (path, path.with_name(path.name + "-wal")):
        if not file.is_file():
            continue
        for match in _ROW.finditer(file.read_bytes()):
            try:
                digest, body, checksum = (part.decode() for part in match.groups())
            except UnicodeDecodeError:
                continue
            numbers = (n for n in range(ROUND_MAX) if checksum_of(n, digest, body) == checksum)
            number = next(numbers, None)
            if number is not None:
                yield SnapshotRow(number, digest, json.loads(body))


def _rounds(path: Path) -> list[RoundRow]:
    """Return the figures of rounds that can be read, oldest first."""
    rounds: dict[int, RoundRow] = {}
    for order in ("asc", "desc"):
        for number, metrics, traffic, digest in _read(
            path, f"select * from rounds order by round {order}"
        ):
            with contextlib.suppress(ValueError, TypeError):
                rounds[number] = RoundRow(number, json.loads(metrics), json.loads(traffic), digest)
    return [rounds[number] for number in sorted(rounds)]
