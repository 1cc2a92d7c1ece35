"""A cache that all nodes of this machine share: SQLite, in its WAL mode.

It keeps image features, and which image files can be used (node/fednode/data/images.py).

A row holds a key, the value, a checksum of both, and the day of its last use. Any number of
processes may read and write at once. A crash loses at most the rows that were being written. If the
cache is damaged, full or not writable, `notes` says so once, and images are encoded as if there
were no cache. Imports no torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from fednode.errors import ConfigError, StateError
from fednode.learn.settings import CacheSettings
from fednode.storage.disk import alone

FILE: Final = "features.db"
WAIT_S: Final = 30.0
"""Time limit for another process's write, which takes milliseconds."""
CHUNK: Final = 500
SHARE_DROPPED: Final = 0.2
"""Share of the rows, least recently used first, that is dropped if the cache exceeds its size."""
DAY_S: Final = 86_400
MAPPED_BYTES: Final = 1 << 30
MOUNTS: Final = Path("/proc/self/mountinfo")
NETWORKED: Final = frozenset(
    {
        *("afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs"),
        *("nfs4", "ocfs2", "orangefs", "panfs", "smb3", "smbfs", "wekafs"),
        *("fuse.beegfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.gcsfuse", "fuse.glusterfs"),
        *("fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    }
)
"""Types of file systems that several machines mount."""


def folder_of(settings: CacheSettings) -> Path:
    """Return the folder of the files that all nodes of this machine share.

    Raise ConfigError if it lies on a network file system: SQLite's WAL needs memory that all its
    processes share.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(settings.folder or Path(base) / "fednode")
    kind = network_file_system(folder) if settings.size_mb else ""
    if kind:
        raise ConfigError(
            f"cache.folder is {folder}, on a network file system ({kind}), where SQLite's WAL does "
            "not work: choose a folder on a disk of this machine, or set cache.size_mb to 0."
        )
    return folder


def network_file_system(folder: Path, mounts: Path = MOUNTS) -> str:
    """Return the type of the network file system that a folder lies on; "" for a local disk.

    mounts: the system's table of mounts (proc(5), mountinfo). "" on systems without such a table.
    """
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    place, kind, longest = folder.resolve(), "", -1
    for line in lines:
        parts, _, source = line.partition(" - ")
        escaped = parts.split(" ")[4]
        point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), escaped))
        if place.is_relative_to(point) and len(point.parts) >= longest:  # the last mount is on top
            kind, longest = source.split(" ")[0], len(point.parts)
    return kind if kind in NETWORKED else ""


def cache_of(settings: CacheSettings) -> FeatureCache | None:
    """Return the machine's cache, or None if it is turned off; raise as folder_of."""
    folder = folder_of(settings)
    return FeatureCache(folder, settings.size_mb * 1_000_000) if settings.size_mb else None


class FeatureCache:
    """Bytes by key, kept on disk up to a size; see the file's header."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self.notes: list[str] = []
        self._path = folder / FILE
        self._size = size_bytes
        self._rows: sqlite3.Connection | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._rows = self._open()
        except (OSError, StateError) as fault:
            self._give_up(str(fault))
        except sqlite3.DatabaseError as fault:
            self._mend(fault)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the cached values of the keys; ignore rows with a wrong checksum."""
        values: dict[bytes, bytes] = {}
        marks_of_use: list[tuple[int, bytes]] = []
        today = int(time.time() // DAY_S)
        for key, value, check, used in self._rows_of(keys):
            if check == _checksum(key, value):
                values[key] = value
                if used != today:
                    marks_of_use.append((today, key))
        if marks_of_use:
            with self._writing() as rows:
                if rows is not None:
                    rows.executemany("UPDATE features SET used = ? WHERE key = ?", marks_of_use)
        return values

    def put(self, items: Mapping[bytes, bytes]) -> None:
        """Insert or replace rows; drop old rows if the cache exceeds its size."""
        if not items:
            return
        today = int(time.time() // DAY_S)
        with self._writing() as rows:
            if rows is None:
                return
            rows.executemany(
                "INSERT OR REPLACE INTO features (key, value, mark, used) VALUES (?, ?, ?, ?)",
                [(key, value, _checksum(key, value), today) for key, value in items.items()],
            )
            self._make_room(rows)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._rows is not None:
            self._rows.close()
            self._rows = None

    def _open(self) -> sqlite3.Connection:
        rows = sqlite3.connect(
            self._path, timeout=WAIT_S, isolation_level=None, check_same_thread=False
        )
        try:
            # SQLite refuses at once, without WAIT_S, where two processes change the mode together.
            with alone(self._path.with_suffix(".lock")):
                rows.execute("PRAGMA journal_mode = WAL")
            rows.execute("PRAGMA synchronous = NORMAL")
            rows.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")
            rows.execute(
                "CREATE TABLE IF NOT EXISTS features "
                "(key BLOB PRIMARY KEY, value BLOB, mark BLOB, used INTEGER)"
            )
            rows.execute("SELECT key, value, mark, used FROM features LIMIT 1").fetchall()
        except BaseException:
            rows.close()
            raise
        return rows

    def _rows_of(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes, bytes, int]]:
        found = []
        for at in range(0, len(keys), CHUNK):
            part = keys[at : at + CHUNK]
            marks = ",".join("?" * len(part))
            statement = f"SELECT key, value, mark, used FROM features WHERE key IN ({marks})"
            try:
                found += self._rows.execute(statement, part).fetchall() if self._rows else []
            except sqlite3.DatabaseError as fault:
                self._mend(fault)
        return found

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection | None]:
        """Give the connection inside a transaction; None if the cache is not in use."""
        if self._rows is None:
            yield None
            return
        try:
            self._rows.execute("BEGIN IMMEDIATE")
            try:
                yield self._rows
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._rows.execute("ROLLBACK")
                raise
            self._rows.execute("COMMIT")
        except sqlite3.DatabaseError as fault:
            self._mend(fault)

    def _make_room(self, rows: sqlite3.Connection) -> None:
        pages, free, size = (
            int(rows.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        if (pages - free) * size > self._size:
            count = int(rows.execute("SELECT COUNT(*) FROM features").fetchone()[0])
            rows.execute(
                "DELETE FROM features WHERE key IN "
                "(SELECT key FROM features ORDER BY used, rowid LIMIT ?)",
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
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)
            self._rows = self._open()
        except (OSError, StateError, sqlite3.Error) as again:
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
