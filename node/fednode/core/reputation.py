"""Reputation: fault points of each peer, which fade, and quarantine for peers with too many.

    points(t) = points * 0.5 ** (t / half_life_s)

A message that no correct node sends costs its sender a point. At `budget` points the sender is
quarantined for quarantine_s, and for twice as long each further time. During the quarantine the
node takes nothing from that peer and sends it nothing. Prompts that are far from the others' are no
fault; the merge rule deals with them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

FAULTS: Final = frozenset({"schema", "not finite", "frame", "identity", "flood", "defect"})
"""Reasons of refusal that cost a point; other reasons can happen to a correct node. Prompts with
too large a norm are refused but cost nothing: a node that merged a dishonest contribution may hold
them."""
DOUBLINGS_MAX: Final = 8
"""A quarantine is doubled so often at most: the longest lasts some four hours."""
SHOWN_MAX: Final = 1000
"""Senders shown for each kind, so that many refusals of one kind do not hide the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The faults of a peer that a node tolerates; tests and the simulator use other values.

    norm_ratio: the longest prompts (Euclidean norm) that are accepted, as a multiple of the norm of
    the node's initial prompts, or of 1 if that norm is smaller. A thousand times stops numbers
    that would end in overflow; tuning does not come near it.
    budget: the faults at which a peer is quarantined. A single fault may be a flipped bit.
    half_life_s: the time in which a peer's points halve, so that rare faults never add up.
    quarantine_s: the length of a peer's first quarantine.
    """

    norm_ratio: float = 1000.0
    budget: float = 5.0
    half_life_s: float = 300.0
    quarantine_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Points:
    """A peer's points at a time, and how often the peer was quarantined."""

    value: float = 0.0
    at: float = 0.0
    times: int = 0


@dataclass(slots=True)
class Tally:
    """Counts of refused messages by kind. A kind is shown once per sender, up to a limit."""

    counts: Counter[str] = field(default_factory=Counter)
    _shown: dict[str, set[str]] = field(default_factory=dict)

    def first(self, kind: str, who: str) -> bool:
        """Count a refusal; tell whether it is to be shown, as the first of its kind and sender."""
        self.counts[kind] += 1
        shown = self._shown.setdefault(kind, set())
        if who in shown or len(shown) >= SHOWN_MAX:
            return False
        shown.add(who)
        return True


class Reputation:
    """The reputation of all peers. There are at most as many entries as members."""

    def __init__(self, tolerance: Tolerance) -> None:
        self._tolerance = tolerance
        self._peers: dict[str, Points] = {}

    def points(self, peer: str, now: float) -> float:
        held = self._peers.get(peer, Points())
        age = max(0.0, now - held.at) / self._tolerance.half_life_s
        return float(held.value * 0.5**age)

    def fault(self, peer: str, now: float) -> float:
        """Add a point; return the peer's quarantine in seconds, 0 if it is below the budget."""
        held = self._peers.get(peer, Points())
        value = self.points(peer, now) + 1.0
        if value < self._tolerance.budget:
            self._peers[peer] = Points(value, now, held.times)
            return 0.0
        # After its quarantine the peer has no points, but the next quarantine is longer.
        self._peers[peer] = Points(0.0, now, held.times + 1)
        return self._tolerance.quarantine_s * 2.0 ** min(held.times, DOUBLINGS_MAX)
