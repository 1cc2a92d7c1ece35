"""Whether the others reach this node at its address, and whether this node reaches the others.

A node that advertises a wrong address goes on to send, and its peers answer, so by itself it sees
nothing wrong. Its peers say in their answers that they cannot reach it. Their word leads to a
warning and to nothing else: one sentence, at most one record a minute, and only while no message of
the peer itself arrives here.

A member that speaks and does not answer this node's calls lives, and this node cannot reach it.
After FAILURES such calls in a row it is no mishap, and this node warns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from fednode.core import foreign
from fednode.core.events import Effect, Record
from fednode.core.members.table import Member

UNREACHED: Final = "reach.address"
REACHED: Final = "reach.again"
RELAYED: Final = "relay"
"""The address of a node that takes no connections and is reached through relays."""
AT_AN_ADDRESS: Final = (
    "set `advertise`, or the address in peers.yaml, to an address that the others reach"
)
AT_A_RELAY: Final = (
    "`fednode status` tells whether this node waits at its relays; all nodes need the same `relays`"
)
SAID_MAX: Final = 200  # characters of a peer's explanation that are kept
EVERY_S: Final = 60.0  # least time between two records on what peers say
NAMED: Final = 3
FAILURES: Final = 3
"""Unanswered sends in a row to a member that lives, from which on this node warns."""


@dataclass(slots=True)
class Reach:
    address: str
    _said: dict[str, str] = field(default_factory=dict)  # by peer: why it cannot reach this node
    _came: dict[str, float] = field(default_factory=dict)  # by peer: when its last message came
    _recorded_at: float = float("-inf")
    _recorded: bool = False

    def note_message(self, now: float, peer: str) -> list[Effect]:
        """Note that a message of a peer arrived: the peer reaches this node."""
        self._came[peer] = now
        self._said.pop(peer, None)
        if self._said or not self._recorded:
            return []
        self._recorded = False
        return [Record(REACHED, "peers reach this node again")]

    def note_answer(self, now: float, peer: str, why: str, lately_s: float) -> list[Effect]:
        """Note what a peer answers: why it cannot reach this node; "" if it says no such thing.

        lately_s: a peer whose own message came within this time is not believed.
        """
        if not why or now - self._came.get(peer, float("-inf")) <= lately_s:
            self._said.pop(peer, None)
            return []
        why = foreign.line(why, SAID_MAX)
        self._said[peer] = why.removeprefix(f"cannot send to {self.address}: ")
        if self._recorded or now - self._recorded_at < EVERY_S:
            return []
        self._recorded, self._recorded_at = True, now
        return [Record(UNREACHED, self._sentence([peer], 1), "warning", {"peer": peer})]

    def warnings(self, live: Collection[str]) -> list[str]:
        """Return what is wrong now, in sentences."""
        said = sorted(set(self._said) & set(live))
        return [self._sentence(said, len(live))] if said else []

    def _sentence(self, said: list[str], live: int) -> str:
        names = ", ".join(said[:NAMED])
        who = names if len(said) <= NAMED else f"{len(said)} of {live} live peers ({names}, ...)"
        verb = "say that they" if len(said) > 1 else "says that it"
        place, remedy = f" at {self.address}", AT_AN_ADDRESS
        if self.address == RELAYED:
            place, remedy = " through a relay", AT_A_RELAY
        return f"{who} {verb} cannot reach this node{place}: {self._said[said[0]]}; {remedy}"


def out_of_reach(member: Member) -> bool:
    """Tell whether so many sends to a member that lives failed that it is no mishap."""
    return member.live and bool(member.unreached) and member.failures >= FAILURES


def warnings(members: Iterable[Member]) -> list[str]:
    """Return one sentence on the members that are out of reach now; nothing if there are none."""
    unreached = [member for member in members if out_of_reach(member)]
    if not unreached:
        return []
    first, count = unreached[0], len(unreached)
    names = ", ".join(member.name for member in unreached[: NAMED + 1])
    more = f" and {count - NAMED - 1} more" if count > NAMED + 1 else ""
    verb, it = ("speak", "them") if count > 1 else ("speaks", "it")
    text = f"{names}{more} {verb}, but this node cannot reach {it}: {first.unreached}"
    if first.address == RELAYED:
        text += "; it is reached through relays alone: `fednode status` tells which relays this "
        text += "node reaches"
    return [text]


def become(before: Member, now: Member) -> list[Effect]:
    if out_of_reach(before) or not out_of_reach(now):
        return []
    return [Record("peer.unreachable", warnings([now])[0], "warning", {"peer": now.name})]
