"""Bounded staleness: in asynchronous rounds a node waits for a peer that falls too far behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fednode.core.members.phases import Phase
from fednode.core.types import Message

PATIENCE: Final = 3.0
"""Longest wait before a round, as a multiple of the time that this node's last round took."""


class Pace:
    """How long a node waits before its next round.

    A peer is late if it was more than `lead` rounds further behind, when it spoke last, than when
    it was least behind since its hello. So only rounds that a peer loses while it runs count.
    Nobody waits until a late joiner, or a node that was off, has made up for all that it missed.
    A peer that stands still while it is waited for is late again only after it has lost `lead`
    rounds more. So a peer that is hung makes one of so many rounds 1 + PATIENCE times as long, and
    one that is slow or hostile each.
    """

    def __init__(self, lead: int | None, interval_s: float = 0.0) -> None:
        """Let a peer fall `lead` rounds behind this node; None: however far.

        interval_s: least time between the beginnings of two rounds.
        """
        self._lead = lead
        self._interval = interval_s
        self._began = float("-inf")
        self._ended: float | None = None  # when the last round ended; None: while a round runs
        self._behind: dict[str, int] = {}  # how far each peer was behind when it spoke last
        self._least: dict[str, int] = {}  # when it was least behind, or stood still in a wait
        self._rounds: dict[str, int] = {}
        self._late, self._moved = set[str](), set[str]()  # moved: since this node's round ended
        self.holds = False
        """Whether the node waits for a peer now."""

    def heard(self, own: int, message: Message) -> None:
        """Note the round of a message's sender. own: the rounds that this node has adopted."""
        if self._lead is None:
            return
        peer, behind = message.sender, max(0, own - message.round)
        known = message.phase != Phase.HELLO and peer in self._least
        if message.round > self._rounds.get(peer, -1):
            self._moved.add(peer)
        self._rounds[peer], self._behind[peer] = message.round, behind
        self._least[peer] = min(self._least[peer], behind) if known else behind
        if behind - self._least[peer] > self._lead:
            self._late.add(peer)
        else:
            self._late.discard(peer)

    def began(self, now: float) -> None:
        """Note that a round begins."""
        self._began, self._ended, self.holds = now, None, False

    def ended(self, now: float) -> None:
        """Note that a round ended."""
        self._ended = now
        self._moved.clear()

    def wait(self, now: float, live: Callable[[str], bool]) -> float:
        """Return the seconds to wait before the next round; 0 if it may begin.

        live: tells whether a peer that has spoken can be sent to now; no other is waited for.
        """
        wait = max(0.0, self._began + self._interval - now)
        return max(wait, self._wait_for_late(now, live))

    def _wait_for_late(self, now: float, live: Callable[[str], bool]) -> float:
        late = {peer for peer in self._late if live(peer)} if self._ended is not None else set()
        self.holds = bool(late)
        if self._ended is None or not late:
            return 0.0
        left = self._ended + PATIENCE * (self._ended - self._began) - now
        if left > 0:
            return left
        self.holds = False
        still = late - self._moved
        self._late -= still
        self._least |= {peer: self._behind[peer] for peer in still}
        return 0.0
