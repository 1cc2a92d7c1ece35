"""Late peers where each node merges what it has (ZeroDFL in sync): rounds without waiting for them.

The accounts and the votes are those of lateness.py. Each message of a round carries its sender's
vote, and in each round each live peer gets one. A peer that rests trains on, and what it sends is
merged when it comes; only nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fednode.core.events import Effect
from fednode.core.policy import NodeContext
from fednode.core.rounds.lateness import Lateness, noted
from fednode.core.types import Message

STAGE = "done"
AHEAD_MAX = 2
"""Votes of so many rounds beyond the one under way are kept."""


class Pace:
    """One node's accounts of its peers, and the votes of the round under way."""

    def __init__(self, context: NodeContext) -> None:
        self._lateness = Lateness(context.name, context.rounds)
        self._name = context.name
        self._number = 0
        self._votes = dict[tuple[int, str], Mapping[str, str]]()  # by round and sender

    @property
    def vote(self) -> Mapping[str, str]:
        """Return the facts of this node's messages in the round under way."""
        return self._lateness.ballot

    def begin(self, number: int, live: Collection[str]) -> list[Effect]:
        """Begin a round; return a record if the others let this node rest from now on."""
        self._number = number
        self._votes = {key: vote for key, vote in self._votes.items() if key[0] >= number}
        self._lateness.begin(number, live)
        return self._lateness.said()

    def hear(self, message: Message) -> None:
        """Note the vote of a message."""
        if self._number <= message.round <= self._number + AHEAD_MAX:
            self._votes[message.round, message.sender] = message.facts
        self._lateness.heard(message)

    def opened(self, now: float, ready: Collection[str]) -> None:
        """Note that this node sends its rows now. ready: peers that did so before."""
        self._lateness.opened(now)
        for peer in ready:
            self.ready(peer, now)

    def ready(self, peer: str, now: float) -> None:
        """Note that a peer finished the round under way."""
        self._lateness.ready(STAGE, peer, now)

    def resting(self, live: Collection[str]) -> frozenset[str]:
        """Return the peers for which the round under way does not wait."""
        if not (self._lateness.ballot or any(self._votes.values())):
            return frozenset()
        ballots = {peer: vote for (of, peer), vote in self._votes.items() if of == self._number}
        return self._lateness.resting(self._number, ballots, {*live, self._name})

    def ended(self, awaited: Collection[str], now: float) -> list[Effect]:
        """Note that the wait of a round ended; return a record of each peer that costs too much.

        awaited: for whom it waited.
        """
        return noted(self._lateness.ended(self._number, STAGE, awaited, now))
