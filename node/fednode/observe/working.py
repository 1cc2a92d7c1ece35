"""How far work is that takes seconds or minutes: loading a model, examining or encoding images."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fednode.units import duration

SAY_EVERY_S: Final = 5.0
"""Seconds between two sentences on the same work, where it cannot be shown live."""
ESTIMATE_S: Final = 1.0
"""Seconds after which the time left is estimated."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work under way.

    done, count: images; 0 and 0 if nothing is counted. spent_s: seconds since it began. left_s:
    estimated seconds until it ends; None if they cannot be estimated.
    """

    name: str
    done: int
    count: int
    spent_s: float
    left_s: float | None = None

    def __str__(self) -> str:
        counted = f" {self.done:,} of {self.count:,}" if self.count else ""
        left = "" if self.left_s is None else f", about {duration(self.left_s)} left"
        return f"{self.name}{counted} ({duration(self.spent_s)}{left})"


class Working:
    """Keeps how far a process is with its work; any thread calls it as a `ProgressFn` of data."""

    def __init__(
        self,
        say: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up; say: gets a sentence every SAY_EVERY_S while work is under way."""
        self._say, self._clock = say, clock
        self._held: tuple[str, int, int] | None = None
        self._began = self._said = clock()
        self._first = 0

    def __call__(self, name: str, done: int, count: int) -> None:
        """Take what is under way; it has ended if all images are done or the name is empty."""
        now, held = self._clock(), self._held
        if not name or 0 < count <= done:
            self._held = None
            return
        if held is None or (held[0], held[2]) != (name, count):
            self._began, self._first = now, done
            if held is None:
                self._said = now
        self._held = name, done, count
        if self._say is not None and now >= self._said + SAY_EVERY_S:
            self._said = now
            self._say(str(self.work()))

    def work(self) -> Work | None:
        """Return the work under way; None if there is none."""
        held = self._held
        if held is None:
            return None
        name, done, count = held
        spent, ahead = self._clock() - self._began, done - self._first
        if ahead <= 0 or spent < ESTIMATE_S:
            return Work(name, done, count, spent)
        return Work(name, done, count, spent, spent * (count - done) / ahead)

    def __str__(self) -> str:
        """Return the work under way in words; "" if there is none."""
        work = self.work()
        return "" if work is None else str(work)
