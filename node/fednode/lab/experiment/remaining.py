"""Estimate how long the missing runs of an experiment take.

Runs start in the order of the cells, each in the process that is free first. A run is expected to
take as long as the method's finished runs took on average, because methods differ much more than
seeds and domains do.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Left:
    """The time left. untimed: methods without a finished run, which `seconds` does not count."""

    seconds: float
    untimed: int

    def __str__(self) -> str:
        if not self.untimed:
            return f"about {span(self.seconds)} left"
        methods = "1 method has" if self.untimed == 1 else f"{self.untimed} methods have"
        if not self.seconds:
            return f"time left unknown: {methods} not been timed yet"
        return f"more than {span(self.seconds)} left: {methods} not been timed yet"


class Remaining:
    """Follow an experiment. Times are seconds of one clock; runs are named by keys."""

    def __init__(self, runs: Sequence[tuple[str, str]], workers: int, now: float) -> None:
        """Take (key, method) of all runs in order, the number of processes, and the time now."""
        self._missing = dict(runs)
        self._workers, self._began = workers, now
        self._started: dict[str, float] = {}
        self._took: defaultdict[str, list[float]] = defaultdict(list)
        self._kept: defaultdict[str, list[float]] = defaultdict(list)

    def keep(self, key: str, seconds: float) -> None:
        """Take a run that an earlier start of the command finished in so many seconds."""
        self._kept[self._missing.pop(key)].append(seconds)

    def end(self, key: str, seconds: float | None, now: float) -> None:
        """Take a run that has just ended. seconds: as it says itself; None if it failed.

        The first run of a process counts with the time that it says itself, because only that run
        waits until the process has loaded the model.
        """
        self._start(self._began)
        began = self._started.pop(key, now - (seconds or 0.0))
        own = seconds if began == self._began else None
        self._took[self._missing.pop(key)].append(now - began if own is None else own)
        self._start(now)

    def left(self, now: float) -> Left:
        """Return the time until the last run ends, as far as its method was timed."""
        self._start(self._began)
        free: list[float] = []
        untimed: set[str] = set()
        for key, method in self._missing.items():
            found = self._took.get(method) or self._kept.get(method)
            if not found:
                untimed.add(method)
                continue
            if key in self._started:
                heapq.heappush(free, max(0.0, fmean(found) - (now - self._started[key])))
            else:
                begins = heapq.heappop(free) if len(free) >= self._workers else 0.0
                heapq.heappush(free, begins + fmean(found))
        return Left(max(free, default=0.0), len(untimed))

    def _start(self, now: float) -> None:
        """Note that the first runs that are missing are under way."""
        for key in list(self._missing)[: self._workers]:
            self._started.setdefault(key, now)


def span(seconds: float) -> str:
    """Return a time for people: seconds, minutes or hours."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
