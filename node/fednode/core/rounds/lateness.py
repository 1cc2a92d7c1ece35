"""Late peers: what a slow peer may cost, and the rounds that all nodes run without it.

A round waits for its slowest peer. Each node keeps an account of each peer: by how long it was
later than the middle one of all nodes, less what it may be late, summed over the stages. It may be
late by most of the median time of a stage, in which nobody's wait counts. A peer whose account is
full rests for so many rounds that it costs at most about half such a time a round, on average.

Nodes measure different times, so a node does not decide alone. It names in its contribution the
peers that it lets rest, and until which round. In a round those peers rest that more than half of
the other participants name in their contributions to this round. Each node counts the same
contributions, so all nodes wait for the same peers, and merge the same contributions: that of a
peer that rests is left out. Fewer than half of the participants rest, or none. Nobody rests in the
last rounds, so that all nodes end alike.

A peer that rests learns from the contributions of the others until when. It trains nothing
meanwhile. It sends what it holds, which proves its round and is merged only if too few nodes let it
rest, and merges what the others send.

If only some nodes are drawn for a round (draw.py), those alone vote, and those alone rest: the
others contribute nothing anyway. Of two participants none can rest.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from fednode.core.events import Effect, Record
from fednode.core.settings import RoundSettings
from fednode.core.types import Message

LATE: Final = "late."
"""Before the name of a peer: a fact of a contribution, whose value is the round of its return."""
STAGES: Final = 21
"""Number of stages of which the median time is taken."""
SPARE: Final = 0.8
"""The part of rounds.lateness that a peer may be late in each stage and never rest."""
FULL: Final = 4.0
"""Median times that fill an account, at least..."""
FULL_SHARE: Final = 5
"""...and as many as the deadline divided by this number, so that short rounds forgive more."""
FIRST_REST: Final = 20
"""Most rounds of the first rest; each rest that follows may last twice as long."""
REST_MAX: Final = 1024
LAST_ROUNDS: Final = 4
"""In so many last rounds nobody rests."""
NAMED_MAX: Final = 16


class Lateness:
    """One node's accounts of its peers, and the votes on who rests.

    name: of this node. own: the round in which this node takes part again, as the others say; 0 if
    it does not rest.
    """

    def __init__(self, name: str, settings: RoundSettings) -> None:
        self.name = name
        self.own = 0
        self._said = 0
        self._settings = settings
        self._of_me = dict[str, tuple[int, int]]()  # by peer: its round, until when it names me
        self._enough = False  # whether more nodes contribute to the round under way than two
        self._until = dict[str, int]()  # the round in which a peer takes part again
        self._ballot = dict[str, str]()  # this node's, of the round under way
        self._accounts = dict[str, float]()  # seconds
        self._rests = dict[str, int]()  # how many followed each other
        self._times = deque[float](maxlen=STAGES)
        self._ready = dict[tuple[str, str], float]()  # since this node was ready
        self._opened = 0.0
        self._ended: float | None = None  # when the stage before ended

    # Votes ----------------------------------------------------------------------------------------

    def heard(self, message: Message) -> None:
        """Note what a peer's contribution says of this node, of whatever round it is."""
        number, until = message.round, _named(message.facts, self.name)
        if number >= self._of_me.get(message.sender, (0, 0))[0]:
            self._of_me[message.sender] = number, min(until, number + 2 * REST_MAX)

    def begin(self, number: int, live: Collection[str], participants: int = 0) -> None:
        """Begin a round.

        live: the other nodes that are live. participants: how many nodes contribute to a round; 0:
        all.
        """
        self._enough = (participants or 1 + len(live)) > 2
        self._until = {peer: until for peer, until in self._until.items() if until > number}
        named = sorted(self._until, key=lambda peer: (-self._until[peer], peer))[:NAMED_MAX]
        self._ballot = {LATE + peer: str(self._until[peer]) for peer in named}
        said = [self._of_me.get(peer, (0, 0))[1] for peer in live]
        rest = sorted(until for until in said if until > number)
        most = 2 * len(rest) > len(said) and self._may(number)
        self.own = rest[(len(rest) - 1) // 2] if most else 0

    def said(self) -> list[Effect]:
        """Return a record that this node rests, once for each rest."""
        new, self._said = self.own != self._said, self.own
        text = f"the others are quicker: they wait for this node again in round {self.own}"
        return [Record("round.resting", text)] if new else []

    @property
    def ballot(self) -> Mapping[str, str]:
        """Return the facts of this node's contribution to the round under way."""
        return self._ballot

    def resting(
        self, number: int, votes: Mapping[str, Mapping[str, str]], among: Collection[str]
    ) -> frozenset[str]:
        """Return who rests in a round, perhaps this node.

        votes: the facts of the contributions to the first stage, by peer. among: the participants.
        Only they vote, so a node that was not drawn finds the same as those that were.
        """
        ballots = dict(votes)
        if self.name in among:
            ballots[self.name] = self._ballot
        if not any(ballots.values()) or not self._may(number):
            return frozenset()
        found = {
            peer
            for peer in among
            if 2 * sum(_named(ballots[other], peer) > number for other in ballots if other != peer)
            > len({*among} - {peer})
        }
        return frozenset(found if 2 * len(found) < len(among) else ())

    def _may(self, number: int) -> bool:
        last = self._settings.max
        return self._enough and (not last or number <= last - LAST_ROUNDS)

    # Accounts -------------------------------------------------------------------------------------

    def opened(self, now: float) -> None:
        """Note that this node is ready: its contribution leaves now."""
        self._opened, self._ready = now, {}

    def ready(self, stage: str, peer: str, now: float) -> None:
        """Note that a peer contributed to a stage and acknowledged."""
        self._ready.setdefault((stage, peer), now)

    def ended(self, number: int, stage: str, peers: Iterable[str], now: float) -> dict[str, int]:
        """Note that a stage ended; return who rests from now on, and until which round.

        peers: for whom it waited. Those that are not ready were late until now.
        """
        share, times, before = self._settings.lateness, {}, self._ended
        self._ended = now
        for peer in peers:
            times[peer] = self._ready.get((stage, peer), now)
        if share is None or not times or before is None:
            return {}
        middle = sorted([*times.values(), self._opened])[(len(times) + 1) // 2]
        self._times.append(max(0.0, middle - before))
        median = max(statistics.median(self._times), self._settings.min_interval_s, 1e-3)
        full = max(FULL * median, self._settings.deadline_s / FULL_SHARE)
        rests = {}
        for peer in sorted(times):
            late = times[peer] - middle - SPARE * share * median
            account = max(0.0, self._accounts.get(peer, 0.0) + late)
            if late < 0.0:
                self._rests.pop(peer, None)
            if account > full and self._may(number):
                rests[peer] = self._until[peer] = self._rest(peer, number, account / median)
                account = 0.0
            self._accounts[peer] = account
        return rests

    def _rest(self, peer: str, number: int, medians: float) -> int:
        """Return until when a peer rests that cost so many medians; most nodes find the same."""
        before = self._rests.get(peer, 0)
        self._rests[peer] = before + 1
        rounds = min(int(2 * medians) + 1, FIRST_REST << min(before, 10), REST_MAX)
        step = 1 << max(0, rounds.bit_length() - 2)
        return -(-(number + rounds) // step) * step


def noted(rests: Mapping[str, int]) -> list[Effect]:
    """Return a record of each peer that is to rest. rests: until which round, by peer."""
    why = "it costs more than one more median round a round"
    return [
        Record("peer.late", f"{peer} may rest until round {until}: {why}", fields={"peer": peer})
        for peer, until in rests.items()
    ]


def _named(facts: Mapping[str, str], peer: str) -> int:
    """Return until which round a ballot lets a peer rest; 0 if it does not."""
    text = facts.get(LATE + peer, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
