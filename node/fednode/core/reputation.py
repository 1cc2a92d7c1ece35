"""Reputation: the faults of each peer, which are forgiven with time, and quarantine for too many.

A message that no correct node sends is a fault of its sender. The faults of a peer are counted by a
token bucket. If `budget` faults come in a short time, their sender is quarantined for quarantine_s,
and for twice as long each further time. During the quarantine the node takes nothing from that peer
and sends it nothing. Prompts that are far from the others' are no fault; the merge rule deals with
them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from fednode.core.rate_limit import TokenBuckets

FAULTS: Final = frozenset({"schema", "not finite", "frame", "identity", "flood", "defect"})
"""Reasons of refusal that are faults; other reasons can happen to a correct node. Prompts with too
large a norm are refused but are no fault: a node that merged a dishonest contribution may hold
them. A message that meets a defect of this node is a fault, because the next one would make it
begin again from its last round, too."""
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
    forgiven_s: one fault is forgiven in each such time, so that rare faults never add up.
    quarantine_s: the length of a peer's first quarantine.
    """

    norm_ratio: float = 1000.0
    budget: int = 5
    forgiven_s: float = 150.0
    quarantine_s: float = 60.0


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
        self._quarantine_s = tolerance.quarantine_s
        self._buckets = TokenBuckets(tolerance.budget - 1, 1 / tolerance.forgiven_s)
        self._quarantines = Counter[str]()

    def fault(self, peer: str, now: float) -> float:
        """Count a fault; return the peer's quarantine in seconds, 0 if it is below the budget."""
        bucket = self._buckets.of(peer, now)
        if bucket.take():
            return 0.0
        bucket.left = self._buckets.size  # after its quarantine the peer begins anew
        self._quarantines[peer] += 1
        return self._quarantine_s * 2.0 ** min(self._quarantines[peer] - 1, DOUBLINGS_MAX)
