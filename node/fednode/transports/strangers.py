"""What callers whose keys a relay does not know may cost it: little, and apart from its members.

A stranger may do one thing at a relay: dial a node that waits there and says that it admits
newcomers. All bounds are on its connection as a whole, so it costs no more if it says nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from fednode.transports.buckets import Buckets
from fednode.transports.room import Room

PLACES: Final = 16
"""Strangers at a time; if all places are taken, the source that holds most loses its oldest."""
VISIT_S: Final = 20.0
"""How long the connection of a stranger may last; a node ends a visit after 15 s."""
BYTES_MAX: Final = 256 << 10
"""Bytes that a stranger may send, and that it may get; an enrolment takes some 20 KiB."""
CALLS_S: Final = 0.5
CALLS_AT_ONCE: Final = 12.0
"""Connections of one source in a second, and at once: `fednode join` opens two."""
ALL_S: Final = 5.0
ALL_AT_ONCE: Final = 30.0
"""Connections of all strangers."""
SOURCES_MAX: Final = 1024
BEGINNING: Final = 28
"""The fewest characters of an id by which a stranger may dial: 125 bits, which a link holds."""


class Strangers:
    """The strangers at one relay."""

    def __init__(self) -> None:
        self._room = Room()
        self._each = Buckets(CALLS_S, CALLS_AT_ONCE, SOURCES_MAX)
        self._all = Buckets(ALL_S, ALL_AT_ONCE, 1)

    @contextlib.contextmanager
    def visit(self, source: str, now: float) -> Iterator[str]:
        """Hold a place for a stranger; yield why it gets none, "" if it gets one."""
        if not self._each.take(source, now):
            yield f"strangers of one source may call {CALLS_AT_ONCE:g} times, then each 2 s"
        elif not self._all.take("", now):
            yield "too many strangers call this relay now"
        else:
            with self._room.place(source, PLACES):
                yield ""

    def sweep(self, now: float) -> None:
        """Forget sources that did not call for a while."""
        self._each.sweep(now)
