"""Straggler back-off: for whom a round waits.

If a live peer lets m rounds wait until the deadline in vain, it is waited for again in rounds whose
number is a multiple of 2 ** m. One contribution in time clears its record. So a slow moment costs a
node one round or two. A peer that never contributes, by fault or by intent, costs few deadlines.

All nodes wait for such a peer in the same rounds, because the rounds' numbers decide. If each node
chose its own rounds, n nodes would wait n times as often, and would miss the deadlines of each
other.

2 ** m grows up to ROUNDS_MAX rounds. It grows further only while the peer costs too much, that
is while two rounds that waited in vain are fewer than DEADLINES_MAX deadlines apart.

If nobody is left to wait for, the peers that are behind are waited for all the same. Otherwise a
node that had given up all peers would run on to its last round alone, ahead of peers that were only
slow or cut off, and none of them would take over a state that nobody else claims.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Self

from fednode.core.types import Json

ROUNDS_MAX: Final = 64
DEADLINES_MAX: Final = 16
MISSES_MAX: Final = 20
STRAGGLERS: Final = "patience"  # its key in a policy's state


@dataclass(frozen=True, slots=True)
class Misses:
    """Of one peer: the last round that waited for it in vain, and how many rounds did."""

    last: int
    count: int


@dataclass(slots=True)
class Stragglers:
    """The peers that let rounds of this node wait in vain, with their records.

    behind: as in RoundDue (node/fednode/core/events.py), of the round under way.
    """

    records: dict[str, Misses] = field(default_factory=dict)
    behind: frozenset[str] = frozenset()
    _times: dict[str, float] = field(default_factory=dict, compare=False)  # of the last miss

    def freeze(self) -> dict[str, Json]:
        records = sorted(self.records.items())
        return {peer: [misses.last, misses.count] for peer, misses in records}

    @classmethod
    def thaw(cls, data: Json) -> Self:
        tree = data if isinstance(data, dict) else {}
        pairs = {peer: entry for peer, entry in tree.items() if isinstance(entry, list)}
        return cls({peer: Misses(int(str(at)), int(str(n))) for peer, (at, n) in pairs.items()})

    def missed(
        self, peers: Iterable[str], number: int, now: float = 0.0, deadline_s: float = 0.0
    ) -> str:
        """Note that a round waited for peers until the deadline, in vain; return their names."""
        names = sorted(peers)
        for peer in names:
            count = self.records[peer].count if peer in self.records else 0
            last = self._times.get(peer)
            soon = last is not None and now - last < DEADLINES_MAX * deadline_s
            more = 2**count < ROUNDS_MAX or (soon and count < MISSES_MAX)
            self.records[peer] = Misses(number, count + more)
            self._times[peer] = now
        return ", ".join(names)

    def kept(self, peer: str) -> None:
        self.records.pop(peer, None)
        self._times.pop(peer, None)

    def awaited(self, peers: Iterable[str], number: int) -> set[str]:
        """Return for whom of the peers a round waits."""
        everyone = set(peers)
        patient = {peer for peer in everyone if self._due(peer, number)}
        return patient or everyone & self.behind

    def _due(self, peer: str, number: int) -> bool:
        record = self.records.get(peer)
        return record is None or (number > record.last and number % 2**record.count == 0)
