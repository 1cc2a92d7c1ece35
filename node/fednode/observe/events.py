"""A node's records: written to the log, kept for status, and streamed to readers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from fednode.core import foreign
from fednode.core.events import Level, Record

TROUBLES: Final = 20
KEPT: Final = 1000
PER_SECOND: Final = 1_000_000
"""Records are numbered from (second of the start) * PER_SECOND, more than one second's records."""
LEVELS: Final[Mapping[Level, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
MISSED: Final = "watch.missed"
LOG = logging.getLogger("fednode")


@dataclass(frozen=True, slots=True)
class Logged:
    """A record with its number, which grows with every record, and in leaps across restarts.

    time: seconds since the epoch, for people only.
    """

    number: int
    time: float
    record: Record


class Ring:
    """The latest records. lost: the number of the last record that made room; -1 for none."""

    def __init__(self, size: int) -> None:
        self._held: deque[Logged] = deque(maxlen=size)
        self.lost = -1

    def __iter__(self) -> Iterator[Logged]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def add(self, logged: Logged) -> None:
        """Keep a record; drop the oldest if there is no room."""
        if len(self._held) == self._held.maxlen:
            self.lost = self._held[0].number
        self._held.append(logged)

    def after(self, number: int) -> list[Logged]:
        """Return the records after a number, oldest first."""
        records: list[Logged] = []
        for logged in reversed(self._held):
            if logged.number <= number:
                break
            records.append(logged)
        return records[::-1]


class Events:
    """All records of a node.

    troubles: the latest warnings and errors, for status. kept: the latest records except debug
    ones.
    details: the latest records of every level, with each message.
    """

    def __init__(self) -> None:
        self.troubles, self.kept, self.details = Ring(TROUBLES), Ring(KEPT), Ring(KEPT)
        self._number = int(time.time()) * PER_SECOND
        self._waiting: set[asyncio.Event] = set()

    def record(self, record: Record) -> None:
        """Log a record, keep it and wake its readers; its text becomes one short line."""
        text = foreign.line(record.text)
        if text != record.text:
            record = replace(record, text=text)
        LOG.log(LEVELS[record.level], "%s", record.text, extra={"record": record})
        self._number += 1
        logged = Logged(self._number, time.time(), record)
        self.details.add(logged)
        if record.level != "debug":
            self.kept.add(logged)
        if record.level in {"warning", "error"}:
            self.troubles.add(logged)
        for event in self._waiting:
            event.set()

    async def follow(self, number: int, level: Level, live: bool = True) -> AsyncGenerator[Logged]:
        """Yield the records of a level and above after a number, stored records first.

        live: go on without end. A reader that is too slow misses records; it gets a record
        "watch.missed".
        """
        ring = self.details if level == "debug" else self.kept
        woken = asyncio.Event()
        self._waiting.add(woken)
        try:
            first = True
            while True:
                woken.clear()
                if ring.lost > number and not first:
                    text = "more happened than could be told: some records were missed"
                    missed = Record(MISSED, text, "warning")
                    yield Logged(ring.lost, time.time(), missed)
                first = False
                for logged in ring.after(number):
                    number = logged.number
                    if LEVELS[logged.record.level] >= LEVELS[level]:
                        yield logged
                if not live:
                    return
                await woken.wait()
        finally:
            self._waiting.discard(woken)
