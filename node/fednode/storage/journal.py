"""The journal: SQLite rows of adopted rounds, and of the settings that a directory belongs to.

    settings    the settings that the directory was made for
    snapshots   the newest rounds: the row that names a tensor file is the commit point
    rounds      the figures of all rounds, for people

One transaction adds a round to both tables. With WAL and synchronous=FULL, a transaction that ended
is on the disk. Methods raise sqlite3.Error; the store turns it into a sentence.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self

from fednode.core.types import Json
from fednode.errors import StateError
from fednode.storage.disk import Disk

FORMAT: Final = 1
SNAPSHOTS_KEPT: Final = 3
ROUNDS_KEPT: Final = 100_000
_TABLES: Final = (
    "create table settings (key text primary key, value text not null)",
    "create table snapshots (round integer primary key, digest text not null,"
    " body text not null, checksum text not null)",
    "create table rounds (round integer primary key, metrics text not null,"
    " traffic text not null, digest text not null)",
)


class RoundRow(NamedTuple):
    """The figures of one adopted round. traffic: since the node was started last."""

    round: int
    metrics: dict[str, float]
    traffic: dict[str, int]
    digest: str


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A row that is needed to read a snapshot back.

    digest: names the tensor file. body: the rest. sound: the row is as it was written.
    """

    round: int
    digest: str
    body: Mapping[str, Json]
    sound: bool = True


class Journal:
    """One connection to a directory's journal.db, used by one thread at a time."""

    def __init__(self, rows: sqlite3.Connection, disk: Disk) -> None:
        self._rows = rows
        self._disk = disk

    @classmethod
    def open(cls, path: Path, disk: Disk) -> Self:
        """Open a journal; make it if there is none. Raise StateError if it cannot be used."""
        rows = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            rows.execute("pragma journal_mode=wal")
            rows.execute("pragma synchronous=full")
            _check_format(rows, path)
        except BaseException:
            rows.close()
            raise
        return cls(rows, disk)

    @classmethod
    def look(cls, path: Path) -> Self:
        """Open a journal for reading, without disturbing a node that writes it."""
        return cls(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True), Disk())

    def settings(self) -> dict[str, str]:
        """Return the settings that the directory was made for; empty for a new directory."""
        return dict(self._rows.execute("select key, value from settings").fetchall())

    def set_settings(self, settings: Mapping[str, str]) -> None:
        """Write the settings that a new directory is made for."""
        self._write(settings)

    def begin_anew(self, settings: Mapping[str, str]) -> None:
        """Write other settings that a directory is made for, and forget its rounds."""
        self._write(settings, forgotten=("settings", "snapshots", "rounds"))

    def _write(self, settings: Mapping[str, str], forgotten: Sequence[str] = ()) -> None:
        self._disk.execute(self._rows, "begin immediate")
        try:
            for table in forgotten:
                self._disk.execute(self._rows, f"delete from {table}")
            for pair in sorted(settings.items()):
                self._disk.execute(self._rows, "insert into settings values (?, ?)", pair)
            self._disk.execute(self._rows, "commit")
        finally:
            self._rollback()

    def add(self, snapshot: SnapshotRow, row: RoundRow) -> None:
        """Commit a round; replace rows of the same or later rounds, drop old rows."""
        body = json.dumps(snapshot.body, sort_keys=True)
        checksum = checksum_of(snapshot.round, snapshot.digest, body)
        run, number = self._disk.execute, snapshot.round
        run(self._rows, "begin immediate")
        try:
            run(self._rows, "delete from snapshots where round >= ?", (number,))
            run(
                self._rows,
                "insert into snapshots values (?, ?, ?, ?)",
                (number, snapshot.digest, body, checksum),
            )
            run(
                self._rows,
                "delete from snapshots where round not in"
                " (select round from snapshots order by round desc limit ?)",
                (SNAPSHOTS_KEPT,),
            )
            run(
                self._rows,
                "delete from rounds where round >= ? or round <= ?",
                (number, number - ROUNDS_KEPT),
            )
            run(
                self._rows,
                "insert into rounds values (?, ?, ?, ?)",
                (number, json.dumps(row.metrics), json.dumps(row.traffic), row.digest),
            )
            run(self._rows, "commit")
        finally:
            self._rollback()

    def fill(
        self,
        settings: Mapping[str, str],
        snapshots: Sequence[SnapshotRow],
        rounds: Sequence[RoundRow],
    ) -> None:
        """Write the rows of another journal into a new one, in one transaction."""
        run = self._rows.execute
        run("begin immediate")
        try:
            for pair in sorted(settings.items()):
                run("insert into settings values (?, ?)", pair)
            for snapshot in snapshots:
                body = json.dumps(snapshot.body, sort_keys=True)
                checksum = checksum_of(snapshot.round, snapshot.digest, body)
                run(
                    "insert into snapshots values (?, ?, ?, ?)",
                    (snapshot.round, snapshot.digest, body, checksum),
                )
            for row in rounds:
                values = (row.round, json.dumps(row.metrics), json.dumps(row.traffic), row.digest)
                run("insert into rounds values (?, ?, ?, ?)", values)
            run("commit")
        finally:
            self._rollback()

    def snapshots(self) -> list[SnapshotRow]:
        """Return the rows of the newest rounds, newest first; damaged rows have sound=False."""
        query = "select round, digest, body, checksum from snapshots order by round desc"
        rows = []
        for number, digest, body, checksum in self._rows.execute(query).fetchall():
            sound = checksum == checksum_of(number, digest, body)
            rows.append(SnapshotRow(number, digest, json.loads(body) if sound else {}, sound))
        return rows

    def digests(self) -> list[str]:
        """Return the digests that the rows of `snapshots` name."""
        return [digest for (digest,) in self._rows.execute("select digest from snapshots")]

    def history(self, since: int, limit: int) -> list[RoundRow]:
        """Return the figures of rounds from `since` on, oldest first."""
        query = "select * from rounds where round >= ? order by round limit ?"
        rows = self._rows.execute(query, (since, limit)).fetchall()
        return [RoundRow(r, json.loads(m), json.loads(t), digest) for r, m, t, digest in rows]

    def close(self) -> None:
        """Close the file; uncommitted changes are lost."""
        self._rows.close()

    def _rollback(self) -> None:
        """Undo a transaction that was not committed."""
        if self._rows.in_transaction:
            self._rows.rollback()


def checksum_of(number: int, digest: str, body: str) -> str:
    """Return the checksum of a snapshot's row."""
    return hashlib.sha256(f"{number}\0{digest}\0{body}".encode()).hexdigest()


def _check_format(rows: sqlite3.Connection, path: Path) -> None:
    """Lay out a new journal; raise StateError or sqlite3.Error if a journal cannot be used."""
    version = int(rows.execute("pragma user_version").fetchone()[0])
    tables = rows.execute("select count(*) from sqlite_schema").fetchone()[0]
    if version == 0 and not tables:
        rows.execute("begin immediate")
        for table in _TABLES:
            rows.execute(table)
        rows.execute(f"pragma user_version={FORMAT}")
        rows.execute("commit")
    elif version != FORMAT:
        age = "an older" if version < FORMAT else "a newer"
        raise StateError(
            f"The state directory {path.parent} was written by {age} fednode (format {version}; "
            f"this version reads {FORMAT}): use that version or another directory."
        )
    elif rows.execute("pragma quick_check(1)").fetchone()[0] != "ok":
        raise sqlite3.DatabaseError(f"{path.name} is damaged")
