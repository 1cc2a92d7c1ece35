"""Compare the prompts of this node with those of its peers after each round.

In sync mode all nodes end a round with equal prompts, unless faults outlast the deadline or a
member sends each node something else. Each message of the kernel names the last round that its
sender adopted and the digest of the prompts that the sender then held. A node compares that digest
with its own and shows in its status which peers differ. When these peers change, the node writes a
record, at most one per deadline.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from fednode.core.events import Effect, Record
from fednode.core.types import Json

DIFFERS: Final = "state.differs"
AGREES: Final = "state.agrees"
PEERS: Final = "peers"  # field of a DIFFERS record: the peers that hold other prompts
ROUNDS_KEPT: Final = 16


@dataclass(slots=True)
class Agreement:
    """The digests of one node and of its peers. every_s: least time between two records."""

    every_s: float
    _past: dict[int, str] = field(default_factory=dict)  # own digests by round
    _claims: dict[str, tuple[int, str]] = field(default_factory=dict)  # latest, by peer
    _apart: set[str] = field(default_factory=set)
    _shown: tuple[str, ...] = ()
    _said_at: float = float("-inf")

    def digest(self, number: int) -> str:
        """Return the digest of this node's prompts after a round; "" if it is not known."""
        return self._past.get(number, "")

    def adopted(self, number: int, digest: str) -> None:
        self._past = {
            at: past for at, past in self._past.items() if number - ROUNDS_KEPT < at < number
        }
        self._past[number] = digest
        for peer in self._claims:
            self._compare(peer)

    def heard(self, peer: str, number: int, digest: str) -> None:
        if digest:
            self._claims[peer] = number, digest
            self._compare(peer)

    def _compare(self, peer: str) -> None:
        number, digest = self._claims[peer]
        if number in self._past:
            (self._apart.discard if self._past[number] == digest else self._apart.add)(peer)

    def apart(self, live: Collection[str]) -> tuple[str, ...]:
        return tuple(sorted(self._apart & set(live))) if self._apart else ()

    def look(self, now: float, live: Collection[str]) -> list[Effect]:
        """Return a record if other peers differ from this node than in the last record."""
        apart = self.apart(live)
        if apart == self._shown or now - self._said_at < self.every_s:
            return []
        self._shown, self._said_at = apart, now
        if not apart:
            return [Record(AGREES, "all live peers hold this node's prompts again")]
        peers: list[Json] = list(apart)
        return [Record(DIFFERS, differs(apart), "warning", {PEERS: peers})]


def differs(apart: Collection[str]) -> str:
    """Return a sentence that names the peers with other prompts."""
    names = ", ".join(apart)
    return f"after the same round this node holds other prompts than {names}"
