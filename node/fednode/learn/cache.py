"""A cache that all nodes of this machine share: a SQLite file.

It keeps image features, and which image files can be used (node/fednode/data/images.py).

A row holds a key, the value and a checksum of both. Any number of processes may read and write:
SQLite's rollback journal needs nothing but file locks, so the file may lie on a network file
system. A process that is killed loses at most the rows that it was writing. If the cache is
damaged, full, not writable or cannot be locked, `notes` says so once, and images are encoded as if
there were no cache. Imports no torch.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fednode.learn.settings import CacheSettings

FILE: Final = "features.db"
WAIT_S: Final = 30.0
"""Time limit for another process's write, which takes milliseconds."""
CHUNK: Final = 500
SHARE_DROPPED: Final = 0.2
"""Share of the rows, oldest first, that is dropped if the cache exceeds its size."""


def folder_of(settings: CacheSettings) -> Path:
    """Return the folder of the files that all nodes of this machine share."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(settings.folder or Path(base) / "fednode")


def cache_of(settings: CacheSettings) -> FeatureCache | None:
    """Return the machine's cache, or None if it is turned off."""
    size = settings.size_mb * 1_000_000
    return FeatureCache(folder_of(settings), size) if size else None


class FeatureCache:
    """Bytes by key, kept on disk up to a size; see the file's header."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self.notes: list[str] = []
        self._path = folder / FILE
        self._size = size_bytes
        self._rows: sqlite3.Connection | None = None
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            self._rows = self._open()
        except OSError as fault:
            self._give_up(str(fault))
        except sqlite3.DatabaseError as fault:
            self._mend(fault)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the cached values of the keys; ignore rows with a wrong checksum."""
        values: dict[bytes, bytes] = {}
        for at in range(0, len(keys), CHUNK):
            part = keys[at : at + CHUNK]
            marks = ",".join("?" * len(part))
            statement = f"SELECT key, value, mark FROM features WHERE key IN ({marks})"
            try:
                found = self._rows.execute(statement, part).fetchall() if self._rows else []
            except sqlite3.DatabaseError as fault:
                self._mend(fault)
                continue
            values |= {key: value for key, value, mark in found if mark == _checksum(key, value)}
        return values

    def put(self, items: Mapping[bytes, bytes]) -> None:
        """Insert or replace rows; drop the oldest rows if the cache exceeds its size."""
        if self._rows is None or not items:
            return
        marked = [(key, value, _checksum(key, value)) for key, value in items.items()]
        try:
            with self._rows as rows:
                statement = "INSERT OR REPLACE INTO features (key, value, mark) VALUES (?, ?, ?)"
                rows.executemany(statement, marked)
                self._make_room(rows)
        except sqlite3.DatabaseError as fault:
            self._mend(fault)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._rows is not None:
            self._rows.close()
            self._rows = None

    def _open(self) -> sqlite3.Connection:
        rows = sqlite3.connect(
            self._path, timeout=WAIT_S, isolation_level="IMMEDIATE", check_same_thread=False
        )
        try:
            rows.execute("PRAGMA synchronous = OFF")  # a power failure may cost the whole cache
            rows.execute(
                "CREATE TABLE IF NOT EXISTS features (key BLOB PRIMARY KEY, value BLOB, mark BLOB)"
            )
            rows.execute("SELECT key, value, mark FROM features LIMIT 1").fetchall()
        except BaseException:
            rows.close()
            raise
        return rows

    def _make_room(self, rows: sqlite3.Connection) -> None:
        pages, free, size = (
            int(rows.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        if (pages - free) * size > self._size:
            count = int(rows.execute("SELECT COUNT(*) FROM features").fetchone()[0])
            rows.execute(
                "DELETE FROM features WHERE key IN "
                "(SELECT key FROM features ORDER BY rowid LIMIT ?)",
                (max(1, int(count * SHARE_DROPPED)),),
            )

    def _mend(self, fault: sqlite3.DatabaseError) -> None:
        """Recreate a damaged file; stop using a file that fails for another reason."""
        self.close()
        if isinstance(fault, sqlite3.OperationalError):  # locked, full, read-only
            self._give_up(str(fault))
            return
        self._note(f"The feature cache {self._path} was damaged ({fault}) and is built anew.")
        try:
            for file in self._path.parent.glob(f"{FILE}*"):  # with SQLite's journal
                file.unlink(missing_ok=True)
            self._rows = self._open()
        except (OSError, sqlite3.Error) as again:
            self._give_up(str(again))

    def _give_up(self, reason: str) -> None:
        self._note(
            f"The feature cache {self._path} cannot be used ({reason}): images are encoded anew at "
            "each start."
        )

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _checksum(key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(value, key=key[:64], digest_size=16).digest()
