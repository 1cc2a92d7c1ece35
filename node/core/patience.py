"""For whom a round waits: not for who let it wait in vain lately, over more and more rounds.

A live peer that did not contribute before the deadline is waited for again after 1, 2, 4, ...
rounds, up to ROUNDS_MAX, and at once when it contributes in time. So a slow moment costs a node one
round, and one that never contributes, by fault or by intent, costs the others few deadlines.

Where nobody is left to wait for, those that are behind are waited for all the same: a node that had
given up all of them would run on to its last round alone, ahead of peers that were only slow or cut
off, and none of them takes over a state that nobody vouches for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Self

from node.core.types import Json

ROUNDS_MAX: Final = 64
PATIENCE: Final = "patience"
"""Its key in a policy's state."""


@dataclass(slots=True)
class Patience:
    """Of one node; held: peer -> the round from which on it is waited for, and its misses.

    behind: as in RoundDue (node/core/events.py), of the round under way.
    """

    held: dict[str, tuple[int, int]] = field(default_factory=dict)
    behind: frozenset[str] = frozenset()

    def freeze(self) -> dict[str, Json]:
        """Return the storable form."""
        return {peer: list(self.held[peer]) for peer in sorted(self.held)}

    @classmethod
    def thaw(cls, data: Json) -> Self:
        """Return the working form of a stored one."""
        found = data if isinstance(data, dict) else {}
        pairs = {peer: one for peer, one in found.items() if isinstance(one, list)}
        return cls({peer: (int(str(one[0])), int(str(one[1]))) for peer, one in pairs.items()})

    def missed(self, peers: Iterable[str], number: int) -> str:
        """Note that a round waited for peers until the deadline, in vain; return their names."""
        names = sorted(peers)
        for peer in names:
            misses = self.held.get(peer, (0, 0))[1]
            self.held[peer] = (number + 1 + min(2**misses, ROUNDS_MAX), misses + 1)
        return ", ".join(names)

    def kept(self, peer: str) -> None:
        """Note that a peer contributed in time."""
        self.held.pop(peer, None)

    def awaited(self, peers: Iterable[str], number: int) -> set[str]:
        """Return for whom of the peers a round waits."""
        everyone = set(peers)
        patient = {one for one in everyone if number >= self.held.get(one, (0, 0))[0]}
        return patient or everyone & self.behind
