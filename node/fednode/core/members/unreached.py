"""Members that live and that this node cannot reach: when this is no mishap, and what is said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fednode.core.events import Effect, Record
from fednode.core.members.reach import RELAYED
from fednode.core.members.table import Member

FAILURES: Final = 3
"""Unanswered sends in a row to a member that lives, from which on this node warns."""
NAMED: Final = 4
ITS_RELAYS: Final = (
    "it is reached through relays alone: `fednode status` tells which relays this node reaches"
)


def out_of_reach(member: Member) -> bool:
    """Tell whether so many sends to a member that lives failed that it is no mishap."""
    return member.live and bool(member.unreached) and member.failures >= FAILURES


def warnings(members: Iterable[Member]) -> list[str]:
    """Return one sentence on the members that are out of reach now; nothing if there are none."""
    unreached = [member for member in members if out_of_reach(member)]
    if not unreached:
        return []
    names = ", ".join(member.name for member in unreached[:NAMED])
    more = f" and {len(unreached) - NAMED} more" if len(unreached) > NAMED else ""
    verb, it = ("speak", "them") if len(unreached) > 1 else ("speaks", "it")
    text = f"{names}{more} {verb}, but this node cannot reach {it}: {unreached[0].unreached}"
    if unreached[0].address == RELAYED:
        text += f"; {ITS_RELAYS}"
    return [text]


def become(before: Member, now: Member) -> list[Effect]:
    """Return a warning if a member has just come out of reach."""
    if out_of_reach(before) or not out_of_reach(now):
        return []
    return [Record("peer.unreachable", warnings([now])[0], "warning", {"peer": now.name})]
