"""Asynchronous rounds: a node waits for a peer that falls behind, so that slow peers are heard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fednode.core.members.phases import Phase
from fednode.core.types import Message

PATIENCE: Final = 3.0
"""Longest wait before a round, as a multiple of the time that this node's last round took."""
STILL: Final = 10.0
"""A peer whose round stands still for so many such times is not waited for until it moves."""


@dataclass(slots=True)
class _Known:
    """A peer as it was when it last spoke: its round, when that was, since when it stands in that
    round, and by how many rounds it was behind when it was least behind.
    """

    round: int
    at: float
    since: float
    least: int


class Pace:
    """How long a node waits before its next round.

    Only rounds that a peer loses while it runs count. By how many it is behind when it says hello,
    as a late joiner or after a restart, does not: nobody waits until such a node has caught up.
    A peer that is slow, hung or hostile makes each round of this node take 1 + PATIENCE times as
    long at most. A peer whose round stands still costs that for STILL rounds only. Between its
    messages a peer counts as running rounds as fast as this node does. A peer that is truly slower
    says so with its next message, and no node of a large mesh waits long for a peer that seldom
    speaks to it.
    """

    def __init__(self, lead: int | None, interval_s: float = 0.0) -> None:
        """Let a peer fall `lead` rounds behind this node; None: however far.

        interval_s: least time between the beginnings of two rounds.
        """
        self._lead = lead
        self._interval = interval_s
        self._began = float("-inf")
        self._ended: float | None = None  # when the last round ended; None: while a round runs
        self._known: dict[str, _Known] = {}
        self._late: set[str] = set()  # those of _known that may be too far behind
        self.holds = False
        """Whether the node waits for a peer now."""

    def heard(self, now: float, own: int, message: Message) -> None:
        """Note the round of a message's sender. own: the rounds that this node has adopted."""
        if self._lead is None:
            return
        peer, behind = message.sender, max(0, own - message.round)
        known = None if message.phase == Phase.HELLO else self._known.get(peer)
        since = known.since if known is not None and known.round == message.round else now
        least = behind if known is None else min(known.least, behind)
        self._known[peer] = _Known(message.round, now, since, least)
        if behind - least > self._lead:
            self._late.add(peer)
        else:
            self._late.discard(peer)

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
        if self._lead is None or self._ended is None or not self._late:
            return 0.0
        took = self._ended - self._began
        period = max(took, self._interval)
        longest = 0.0
        for peer in list(self._late):
            known = self._known[peer]
            lost = number - 1 - known.round - known.least
            until = known.at + (lost - self._lead) * period
            if until <= now:
                self._late.discard(peer)
            elif now - known.since < STILL * took and live(peer):
                longest = max(longest, until - now)
        left = min(longest, self._ended + PATIENCE * took - now)
        self.holds = left > 0
        return left if self.holds else 0.0
