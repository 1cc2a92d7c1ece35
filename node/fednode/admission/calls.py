"""The introducer's calls: a log with the number of all calls so far, and guesses of tokens."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from fednode.core import foreign
from fednode.errors import IdentityError

LINES_A_MINUTE: Final = 60
"""Further calls are only counted, so that strangers do not fill a disk."""
ASKED_MAX: Final = 20
"""Calls without a good token (wrong tokens, renewals) that one source may make in a minute."""
SOURCES_MAX: Final = 1024


class Guesses:
    """Count the calls without a good token of each source."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._asked: dict[str, list[float]] = {}

    def add(self, source: str) -> None:
        """Count a call; raise IdentityError if its source made too many lately."""
        now = self._clock()
        lately = [moment for moment in self._asked.pop(source, []) if now - moment < 60]
        self._asked[source] = lately  # the most recent source is last
        if len(self._asked) > SOURCES_MAX:
            del self._asked[next(iter(self._asked))]
        if len(lately) >= ASKED_MAX:
            raise IdentityError("too many wrong tokens came from there; try again in a minute")
        lately.append(now)


class CallLog:
    """Count an introducer's calls, and show them to its operator."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Set up. say: shows a line. clock: returns seconds."""
        self._say, self._clock = say, clock
        self._counts: Counter[str] = Counter()
        self._shown: deque[float] = deque(maxlen=LINES_A_MINUTE)

    def add(self, what: str, text: str) -> None:
        """Count a call under "enrolled", "refused", ..., and show a line if there is room."""
        self._counts[what] += 1
        now = self._clock()
        if len(self._shown) == LINES_A_MINUTE and now - self._shown[0] < 60:
            return
        self._shown.append(now)
        counts = ", ".join(f"{count} {key}" for key, count in sorted(self._counts.items()))
        self._say(foreign.line(f"{text} [so far: {counts}]"))
