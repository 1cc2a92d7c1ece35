"""A node's records: written to the log, kept for status, and streamed to readers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
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


class Ring(deque[Logged]):
    """The latest records. lost: the number of the last record that made room; -1 for none."""

    lost = -1

    def add(self, logged: Logged) -> None:
        """Keep a record; drop the oldest if there is no room."""
        if len(self) == self.maxlen:
            self.lost = self[0].number
        self.append(logged)

    def after(self, number: int) -> list[Logged]:
        """Return the records after a number, oldest first."""
        return list(takewhile(lambda one: one.number > number, reversed(self)))[::-1]


class Events:
    """All records of a node.

    troubles: the latest warnings and errors, for status. kept: the latest records except debug
    ones.
    details: the latest records of every level, with each message.
    """

    def __init__(self) -> None:
        self.troubles = Ring(maxlen=TROUBLES)
        self.kept, self.details = Ring(maxlen=KEPT), Ring(maxlen=KEPT)
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
        number = max(number, ring.lost)  # nobody missed what was gone before the first look
        woken = asyncio.Event()
        self._waiting.add(woken)
        try:
            while True:
                woken.clear()
                if ring.lost > number:
                    text = "this reader is too slow: some records were left out"
                    missed = Record(MISSED, text, "warning")
                    yield Logged(ring.lost, time.time(), missed)
                for logged in ring.after(number):
                    number = logged.number
                    if LEVELS[logged.record.level] >= LEVELS[level]:
                        yield logged
                if not live:
                    return
                await woken.wait()
        finally:
            self._waiting.discard(woken)
