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
    """A peer as it was when it last spoke: its round, when that was, and since when it stands in
    that round.
    """

    round: int
    at: float
    since: float


class Pace:
    """How long a node waits before its next round.

    A peer that is slow, hung or hostile makes each round of this node take 1 + PATIENCE times as
    long at most. A peer whose round stands still costs that for STILL rounds only. Between its
    messages a peer counts as running rounds as fast as this node does. A peer that is truly slower
    says so with its next message, and no node of a large mesh waits long for a peer that seldom
    speaks to it.
    """

    def __init__(self, lead: int | None, interval_s: float = 0.0) -> None:
        """Let the node be `lead` rounds ahead of its slowest peer; None: however far.

        interval_s: least time between the beginnings of two rounds.
        """
        self._lead = lead
        self._interval = interval_s
        self._began = float("-inf")
        self._ended: float | None = None  # when the last round ended; None: while a round runs
        self._said: dict[str, tuple[float, int]] = {}  # what came since the last wait, and when
        self._known: dict[str, _Known] = {}
        self._late: set[str] = set()  # those of _known that may be too far behind
        self.holds = False
        """Whether the node waits for a peer now."""

    def heard(self, now: float, peer: str, number: int) -> None:
        """Note which round a peer says it is in."""
        if self._lead is not None:
            self._said[peer] = now, number

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
        for peer, (at, said) in self._said.items():
            self._note(at, peer, said)
            if number - 1 - said > self._lead:
                self._late.add(peer)
        self._said.clear()
        if self._ended is None or not self._late:
            return 0.0
        took = self._ended - self._began
        period = max(took, self._interval)
        longest = 0.0
        for peer in list(self._late):
            known = self._known[peer]
            until = known.at + (number - 1 - known.round - self._lead) * period
            if until <= now:
                self._late.discard(peer)
            elif now - known.since < STILL * took and live(peer):
                longest = max(longest, until - now)
        left = min(longest, self._ended + PATIENCE * took - now)
        self.holds = left > 0
        return left if self.holds else 0.0

    def _note(self, now: float, peer: str, number: int) -> None:
        known = self._known.get(peer)
        since = known.since if known is not None and known.round == number else now
        self._known[peer] = _Known(number, now, since)
