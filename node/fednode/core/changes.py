"""Records of the changes of members' states, few enough that no member fills a log.

A member that leaves and joins without end would write a record for each of its messages. A node
writes BURST records of a member and level at once, and then one in EVERY_S seconds; that record
says how many were left out before it. Warnings count apart, so that the last "is dead" is written
however often the member came and went before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fednode.core.events import Level, Record

BURST: Final = 8
EVERY_S: Final = 60.0
ROOMS_MAX: Final = 4096
WARN: Final = frozenset({"dead", "refused", "revoked", "quarantined"})


@dataclass(slots=True)
class _Room:
    """How many records may be written at a time in seconds, and how many were left out."""

    left: float
    at: float
    unwritten: int = 0


class Changes:
    """Write the records of changes."""

    def __init__(self) -> None:
        self._rooms: dict[tuple[str, Level], _Room] = {}

    def record(
        self, now: float, peer: str, state: str, reason: str, before: str = ""
    ) -> list[Record]:
        """Return the record of a member's new state; nothing if it had too many lately.

        before: its last state. One that never answered may not run yet, which is no death.
        """
        yet = (before, state) == ("unknown", "dead")
        level: Level = "warning" if state in WARN and not yet else "info"
        room = self._rooms.pop((peer, level), None) or _Room(BURST, now)
        self._rooms[peer, level] = room  # the latest is last
        if len(self._rooms) > ROOMS_MAX:
            del self._rooms[next(iter(self._rooms))]
        room.left = min(BURST, room.left + max(now - room.at, 0.0) / EVERY_S)
        room.at = now
        if room.left < 1.0:
            room.unwritten += 1
            return []
        room.left -= 1.0
        what = "does not answer yet" if yet else f"is {state}"
        text = f"{peer} {what}" + (f": {reason}" if reason else "")
        if room.unwritten:
            text += f" ({room.unwritten} such changes of {peer} before this one were left out)"
            room.unwritten = 0
        return [Record(f"peer.{state}", text, level, {"peer": peer})]
