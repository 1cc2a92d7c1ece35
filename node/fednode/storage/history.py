"""The figures of adopted rounds, for people: history.jsonl, one JSON object a line.

A row is written before the checkpoint of its round. So a row, or a part of one, behind that of the
newest checkpoint is of a round that was never adopted: the next row takes its place.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Final, NamedTuple

from fednode.storage.disk import Disk

BYTES_MAX: Final = 32_000_000
"""Size at which the older half of the rows goes; some 70,000 rounds."""
BEGIN: Final = b'{"round": '
"""How each row begins."""


class RoundRow(NamedTuple):
    """The figures of one adopted round. traffic: since the node was started last."""

    round: int
    metrics: dict[str, float]
    traffic: dict[str, int]
    digest: str


class History:
    """The file of one state directory, used by one thread at a time. Methods raise OSError.

    newest: the round of the newest checkpoint. torn: whether the row of that round is torn.
    """

    def __init__(self, path: Path, disk: Disk, newest: int) -> None:
        self._path, self._disk, self.newest = path, disk, newest
        if not path.exists():
            os.close(disk.create(path))  # the store syncs the folder
        lines = path.read_bytes().splitlines(keepends=True)
        last, torn = -1, False
        while lines and last < 0:
            row = _read(lines[-1])
            if row is None or row.round > newest:
                torn = torn or row is None
                lines.pop()
            else:
                last = row.round
        self.torn = torn and last < newest
        self._end = sum(map(len, lines))

    def write(self, row: RoundRow) -> int:
        """Write the row of a round; return the size of the file, for `adopt`."""
        if row.round <= self.newest:  # the round was run again
            before, _ = self._split(row.round)
            self._end = sum(map(len, before))
        line = json.dumps(row._asdict()).encode() + b"\n"
        self._disk.append(self._path, self._end, line)
        return self._end + len(line)

    def adopt(self, number: int, size: int) -> None:
        """Show the row that was written last; drop the older half of a file that is too large."""
        self.newest, self._end = number, size
        if size > BYTES_MAX:
            lines, _ = self._split(number + 1)
            with contextlib.suppress(OSError):  # a disk that has no room has room another time
                self._disk.replace(self._path, b"".join(lines[len(lines) // 2 :]))
            self._end = self._path.stat().st_size

    def rows(self, since: int, limit: int) -> list[RoundRow]:
        """Return the rows of rounds from `since` on, oldest first; leave out damaged rows."""
        _, lines = self._split(since)
        return [row for row in map(_read, lines[:limit]) if row is not None]

    def _split(self, number: int) -> tuple[list[bytes], list[bytes]]:
        """Return the lines of the rounds before a round, and those from it on."""
        with self._path.open("rb") as file:
            lines = file.read(self._end).splitlines(keepends=True)
        first = len(lines)
        while first and _round(lines[first - 1], number) >= number:
            first -= 1
        return lines[:first], lines[first:]


def _read(line: bytes) -> RoundRow | None:
    """Return the row in a line; None if the line is torn or damaged."""
    try:
        row = RoundRow(**json.loads(line))
        return row if line.endswith(b"\n") and isinstance(row.round, int) else None
    except (ValueError, TypeError, RecursionError):
        return None


def _round(line: bytes, other: int) -> int:
    """Return the round of a line, as quickly as 70,000 lines need it; `other` for a damaged one."""
    digits = line[len(BEGIN) :].partition(b",")[0]
    return int(digits) if line.startswith(BEGIN) and digits.isdigit() else other
