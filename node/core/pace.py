"""Asynchronous rounds: a node that is far ahead of a peer waits, so that slow peers are heard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

PATIENCE: Final = 3.0
"""Longest wait before a round, as a multiple of the time that this node's last round took."""
STILL: Final = 10.0
"""A peer whose round stands still for so many such times is not waited for until it moves."""


@dataclass(slots=True)
class _Known:
    """A peer as it was when it last spoke: its round, by how many rounds it was behind, and since
    when it stands in that round.
    """

    round: int
    behind: int
    since: float


class Pace:
    """How long a node waits before its next round.

    A peer that is slow, hung or hostile makes each round of this node take 1 + PATIENCE times as
    long at most. A peer whose round stands still costs that for STILL rounds only. Of a peer that
    was not heard lately only what it said counts, so that no node of a large mesh waits for peers
    that seldom speak to it.
    """

    def __init__(self, lead: int | None, interval_s: float = 0.0) -> None:
        """Let the node be `lead` rounds ahead of its slowest peer; None: however far.

        interval_s: least time between the beginnings of two rounds.
        """
        self._lead = lead
        self._interval = interval_s
        self._began = float("-inf")
        self._ended: float | None = None  # when the last round ended; None: while a round runs
        self._said: dict[str, int] = {}  # rounds that came since the last wait
        self._known: dict[str, _Known] = {}
        self._late: set[str] = set()  # those of _known that are too far behind
        self.holds = False
        """Whether the node waits for a peer now."""

    def heard(self, peer: str, number: int) -> None:
        """Note which round a peer says it is in."""
        if self._lead is not None:
            self._said[peer] = number

    def began(self, now: float) -> None:
        """Note that a round begins."""
        self._began, self._ended, self.holds = now, None, False

    def ended(self, now: float) -> None:
        """Note that a round ended."""
        self._ended = now

    def wait(self, now: float, number: int, live: Callable[[str], bool]) -> float:
        """Return the seconds to wait before round `number`; 0 if it may begin.

        live: tells whether a peer that has spoken can be sent to now; no other is waited for.
        """
        wait = max(0.0, self._began + self._interval - now)
        return max(wait, self._wait_for(live, now, number))

    def _wait_for(self, live: Callable[[str], bool], now: float, number: int) -> float:
        self.holds = False
        if self._lead is None:
            return 0.0
        for peer, at in self._said.items():
            self._note(now, number, peer, at)
        self._said.clear()
        if self._ended is None or not self._late:
            return 0.0
        took = self._ended - self._began
        slow = any(
            now - self._known[peer].since < STILL * took and live(peer) for peer in self._late
        )
        left = self._ended + PATIENCE * took - now
        self.holds = slow and left > 0
        return left if self.holds else 0.0

    def _note(self, now: float, number: int, peer: str, at: int) -> None:
        known = self._known.get(peer)
        behind = number - 1 - at
        since = known.since if known is not None and known.round == at else now
        self._known[peer] = _Known(at, behind, since)
        if behind > (self._lead or 0):
            self._late.add(peer)
        else:
            self._late.discard(peer)
