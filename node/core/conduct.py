"""What peers did wrong: points that fade, and quarantine for who has too many.

    points(t) = points * 0.5 ** (t / half_life_s)

A message that no correct node sends costs its sender a point. At `budget` points the sender is
quarantined: nothing of it is taken, and nothing is sent to it, for quarantine_s, and twice as long
each further time. Distance in training is no fault; what is merged is the merge's business.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from node.core.settings import LimitSettings

FAULTS: Final = frozenset({"schema", "not finite", "frame", "identity", "flood"})
"""Reasons of refusal that cost a point; others can happen to anybody. Long prompts are refused and
cost none: who merged what a liar sent may hold them."""
DOUBLINGS_MAX: Final = 8
SHOWN_MAX: Final = 1000
"""Senders that are shown of each kind: many of one kind silence no other."""


@dataclass(frozen=True, slots=True)
class Points:
    """A peer's points at a time, and how often it was quarantined."""

    value: float = 0.0
    at: float = 0.0
    times: int = 0


@dataclass(slots=True)
class Tally:
    """What was refused, by kind. Each kind of each sender is shown once, up to a limit."""

    counts: Counter[str] = field(default_factory=Counter)
    _shown: dict[str, set[str]] = field(default_factory=dict)

    def first(self, kind: str, who: str) -> bool:
        """Count one; tell whether it is the first of its kind and sender."""
        self.counts[kind] += 1
        shown = self._shown.setdefault(kind, set())
        if who in shown or len(shown) >= SHOWN_MAX:
            return False
        shown.add(who)
        return True


class Conduct:
    """The points of all peers; bounded by the members that there are."""

    def __init__(self, settings: LimitSettings) -> None:
        self._settings = settings
        self._peers: dict[str, Points] = {}

    def points(self, peer: str, now: float) -> float:
        """Return what is left of a peer's points."""
        held = self._peers.get(peer, Points())
        age = max(0.0, now - held.at) / self._settings.half_life_s
        return float(held.value * 0.5**age)

    def fault(self, peer: str, now: float) -> float:
        """Add a point; return for how many seconds the peer is to be quarantined, 0 for not."""
        held = self._peers.get(peer, Points())
        value = self.points(peer, now) + 1.0
        if value < self._settings.budget:
            self._peers[peer] = Points(value, now, held.times)
            return 0.0
        # It starts anew after its time, but the next time is longer.
        self._peers[peer] = Points(0.0, now, held.times + 1)
        return self._settings.quarantine_s * 2.0 ** min(held.times, DOUBLINGS_MAX)
