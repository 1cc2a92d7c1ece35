"""Participants: the H of K nodes that tune and contribute in a round, drawn without a message.

Every node ranks the names of all members by a hash of (run seed, name, round) and takes the first H
(rendezvous hashing). Members are all nodes that this node knows, live or not, except those that
left or were revoked. If two nodes do not know the same members yet, their draws differ by no more
names than their lists do.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from fednode.core.policy import draw_seed

PURPOSE: Final = "participants"
SPAN_MAX: Final = 64
"""Upper limit of `span`."""


def wanted(config: Any) -> int:
    """Return `participants` of a policy's settings; 0 if they have no such field."""
    participants: int = getattr(config, "participants", 0)
    return participants


def drawn(seed: int, number: int, names: Collection[str], count: int) -> frozenset[str]:
    """Return the `count` names that take part in round `number`; all names if count is 0."""
    if not count or count >= len(names):
        return frozenset(names)
    ranked = sorted(names, key=lambda name: (draw_seed(seed, name, number, PURPOSE), name))
    return frozenset(ranked[:count])


def span(members: int, count: int) -> int:
    """Return over how many rounds nodes contribute as often as in one round without draws."""
    return min(SPAN_MAX, -(-members // count)) if 0 < count < members else 1
