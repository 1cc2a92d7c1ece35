"""Bounded staleness: in asynchronous rounds a node waits for a peer that falls too far behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fednode.core.types import Message, Phase

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

    lead: how many rounds a peer may fall behind; None: however many. interval_s: least time between
    the beginnings of two rounds. holds: whether the node waits for a peer now.
    """

    def __init__(self, lead: int | None, interval_s: float = 0.0) -> None:
        self._lead, self._interval, self.holds = lead, interval_s, False
        self._began = float("-inf")
        self._ended: float | None = None  # when the last round ended; None: while a round runs
        self._behind: dict[str, int] = {}  # how far each peer was behind when it spoke last
        self._least: dict[str, int] = {}  # when it was least behind, or stood still in a wait
        self._rounds: dict[str, int] = {}
        self._moved = set[str]()  # since this node's round ended

    def heard(self, own: int, message: Message) -> None:
        """Note the round of a message's sender. own: the rounds that this node has adopted."""
        peer, behind = message.sender, max(0, own - message.round)
        known = message.phase != Phase.HELLO and peer in self._least
        if message.round > self._rounds.get(peer, -1):
            self._moved.add(peer)
        self._rounds[peer], self._behind[peer] = message.round, behind
        self._least[peer] = min(self._least[peer], behind) if known else behind

    def began(self, now: float) -> None:
        self._began, self._ended, self.holds = now, None, False

    def ended(self, now: float) -> None:
        self._ended = now
        self._moved.clear()

    def wait(self, now: float, live: Callable[[str], bool]) -> float:
        """Return the seconds to wait before the next round; 0 if it may begin.

        live: tells whether a peer that has spoken can be sent to now; no other is waited for.
        """
        wait = max(0.0, self._began + self._interval - now)
        self.holds = False
        if self._ended is None or self._lead is None:
            return wait
        late = {
            peer
            for peer, behind in self._behind.items()
            if behind - self._least[peer] > self._lead and live(peer)
        }
        left = self._ended + PATIENCE * (self._ended - self._began) - now
        if late and left > 0:
            self.holds = True
            return max(wait, left)
        self._least |= {peer: self._behind[peer] for peer in late - self._moved}
        return wait
