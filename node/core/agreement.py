"""Whether the members hold the same prompts after the same round, as far as this node knows.

In sync all nodes end a round with equal prompts, unless faults outlast the deadline or a member
tells each node something else. Each message of the kernel says after which round its sender is, and
the digest of the prompts that it then held. A node compares them with its own, shows in its status
who holds others, and writes a record when that changes, at most one every deadline.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from node.core.events import Effect, Record
from node.core.types import Json

DIFFERS: Final = "state.differs"
AGREES: Final = "state.agrees"
PEERS: Final = "peers"
"""Field of a record DIFFERS: who holds other prompts."""
ROUNDS_KEPT: Final = 16


@dataclass(slots=True)
class Agreement:
    """Of one node. every_s: least time between two records."""

    every_s: float
    _past: dict[int, str] = field(default_factory=dict)  # own digests by round
    _told: dict[str, tuple[int, str]] = field(default_factory=dict)  # by peer, its latest
    _apart: set[str] = field(default_factory=set)
    _shown: tuple[str, ...] = ()
    _said_at: float = float("-inf")

    def digest(self, number: int) -> str:
        """Return the digest of what this node held after a round; "" where it is not known."""
        return self._past.get(number, "")

    def adopted(self, number: int, digest: str) -> None:
        """Note what this node holds after a round."""
        self._past = {
            at: one for at, one in self._past.items() if number - ROUNDS_KEPT < at < number
        }
        self._past[number] = digest
        for peer in self._told:
            self._compare(peer)

    def heard(self, peer: str, number: int, digest: str) -> None:
        """Note what a peer says that it holds after a round; "" if it does not say."""
        if digest:
            self._told[peer] = number, digest
            self._compare(peer)

    def _compare(self, peer: str) -> None:
        number, digest = self._told[peer]
        if number in self._past:
            (self._apart.discard if self._past[number] == digest else self._apart.add)(peer)

    def apart(self, live: Collection[str]) -> tuple[str, ...]:
        """Return the live peers that hold other prompts than this node after the same round."""
        return tuple(sorted(self._apart & set(live)))

    def look(self, now: float, live: Collection[str]) -> list[Effect]:
        """Return a record if somebody else differs from this node than the last one said."""
        apart = self.apart(live)
        if apart == self._shown or now - self._said_at < self.every_s:
            return []
        self._shown, self._said_at = apart, now
        if not apart:
            return [Record(AGREES, "all live members hold the same prompts as this node again")]
        peers: list[Json] = list(apart)
        return [Record(DIFFERS, differs(apart), "warning", {PEERS: peers})]


def differs(apart: Collection[str]) -> str:
    """Say who holds other prompts."""
    return f"after the same round this node holds other prompts than {', '.join(apart)}"
