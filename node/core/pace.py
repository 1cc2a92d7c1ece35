"""Asynchronous rounds: a node that is far ahead of a peer waits, so that slow peers are heard."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

PATIENCE: Final = 3.0
"""Longest wait before a round, as a multiple of the time that this node's last round took."""
STILL: Final = 10.0
"""A peer whose round stands still for so many such times is not waited for until it moves."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A live peer's round, as the peer last said it, and when it said so."""

    name: str
    round: int
    at: float


@dataclass(slots=True)
class _Known:
    """behind: by how many rounds the peer was behind this node when it was last heard."""

    last: Heard
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
        self._known: dict[str, _Known] = {}
        self.holds = False
        """Whether the node waits for a peer now."""

    def began(self, now: float) -> None:
        """Note that a round begins."""
        self._began, self._ended, self.holds = now, None, False

    def ended(self, now: float) -> None:
        """Note that a round ended."""
        self._ended = now

    def wait(self, now: float, number: int, peers: Iterable[Heard]) -> float:
        """Return the seconds to wait before round `number`; 0 if it may begin."""
        wait = max(0.0, self._began + self._interval - now)
        return max(wait, self._wait_for(peers, now, number))

    def _wait_for(self, peers: Iterable[Heard], now: float, number: int) -> float:
        self.holds = False
        if self._lead is None:
            return 0.0
        self._known = {one.name: self._after(now, number, one) for one in peers}
        if self._ended is None:
            return 0.0
        took = self._ended - self._began
        slow = any(
            one.behind > self._lead and now - one.since < STILL * took
            for one in self._known.values()
        )
        left = self._ended + PATIENCE * took - now
        self.holds = slow and left > 0
        return left if self.holds else 0.0

    def _after(self, now: float, number: int, heard: Heard) -> _Known:
        known = self._known.get(heard.name)
        if known is not None and known.last.at == heard.at:
            return known
        still = known is not None and known.last.round == heard.round
        return _Known(heard, number - 1 - heard.round, known.since if known and still else now)
