"""The page's table of the mesh: how this node sees each node, and what each node says of itself.

The two are kept apart, because a member may say anything of itself. Only known words are taken,
accuracies from 0 to 1, and names of members that this node knows. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fednode.core.members.table import GONE, LIVE
from fednode.core.policy import Activity
from fednode.core.view import Life
from fednode.observe.telemetry import MEASURED
from fednode.units import duration
from fednode.wire.gen import status_pb2

LIVES: Final = frozenset(Life)
ACTIVITIES: Final = frozenset(Activity)
UNREADABLE: Final = "unreadable"
NAMED: Final = 3
"""Most nodes that the headline names."""
LOST: Final = frozenset({"dead", "refused", "quarantined"})
FRESH_S: Final = 15.0
"""What a node said longer ago does not count for how others are seen."""
LEFT_MAX_S: Final = 1e8
"""A longer time left, some three years, is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfView:
    """What a node says of itself. at: when it said so, in seconds of this node's clock.

    left_s: time to its last round; None if it is not known. sent: messages by receiver. states:
    how it sees the other members.
    """

    at: float
    life: str
    phase: str
    accuracies: Mapping[str, float]
    loss: float | None
    left_s: float | None
    sent: Mapping[str, int]
    states: Mapping[str, str]

    @property
    def alive(self) -> int:
        """How many members it sees as alive."""
        return sum(state == "alive" for state in self.states.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One node of the mesh. peer: as this node sees it; None for this node itself.

    told: what the node last said of itself; None if it said nothing. ago_s: how long ago. seen:
    by how many of the nodes that answered lately it is seen as alive, and by how many it is seen.
    """

    name: str
    address: str
    state: str
    peer: status_pb2.Peer | None
    told: SelfView | None
    ago_s: float
    seen: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Headline:
    """What is wrong with the mesh, in a sentence. bad: a peer is lost, not only suspect."""

    text: str
    short: str
    bad: bool


def left_s(reply: status_pb2.StatusReply) -> float | None:
    """Return the seconds to a running node's last round at its latest pace; None if unknown."""
    rounds = reply.rounds_max - reply.round
    if reply.life != Life.RUNNING or rounds <= 0 or not 0 < reply.round_s * rounds <= LEFT_MAX_S:
        return None
    return float(reply.round_s * rounds)


def self_view(reply: status_pb2.StatusReply, members: frozenset[str], at: float) -> SelfView:
    """Return what a reply says, without what it says of others than the members."""
    accuracies = {key: reply.measured[key] for key in MEASURED if key in reply.measured}
    others = [peer for peer in reply.peers if peer.name in members]
    return SelfView(
        at=at,
        life=reply.life if reply.life in LIVES else UNREADABLE,
        phase=reply.phase if reply.phase in ACTIVITIES else UNREADABLE,
        accuracies={
            key: accuracy for key, accuracy in accuracies.items() if 0.0 <= accuracy <= 1.0
        },
        loss=reply.metrics.get("loss"),
        left_s=left_s(reply),
        sent={peer.name: peer.traffic.messages_out for peer in others},
        states={peer.name: peer.state for peer in others},
    )


def rows(now: status_pb2.StatusReply, heard: Mapping[str, SelfView], at: float) -> list[Row]:
    """Return a row for each node of the mesh: this node first, then its peers by name."""
    own = self_view(now, frozenset(peer.name for peer in now.peers), at)
    fresh = [own, *(heard_view for heard_view in heard.values() if at - heard_view.at <= FRESH_S)]
    listed: list[tuple[str, str, str, status_pb2.Peer | None]] = [
        (now.name, now.address, now.life, None),
        *((peer.name, peer.address, peer.state, peer) for peer in now.peers),
    ]
    table = []
    for name, address, state, peer in listed:
        views = [view.states[name] for view in fresh if name in view.states]
        last = heard.get(name) if peer else own
        table.append(
            Row(
                name=name,
                address=address,
                state=state,
                peer=peer,
                told=last,
                ago_s=at - last.at if last else 0.0,
                seen=(views.count("alive"), len(views)),
            )
        )
    return table


def columns(peers: Sequence[status_pb2.Peer]) -> list[str]:
    """Return the titles of what the policy shows of peers, sorted."""
    return sorted({title for peer in peers for title in peer.shown})


def headline(peers: Sequence[status_pb2.Peer]) -> Headline | None:
    """Return what is wrong with the peers; None if all that belong to the mesh are alive."""
    lost = [peer for peer in peers if peer.state in LOST]
    wrong = lost or [peer for peer in peers if peer.state == "suspect"]
    if not wrong:
        return None
    known = [peer for peer in peers if peer.state not in GONE]
    parts = [_lost(peer) for peer in wrong[:NAMED]]
    if len(wrong) > NAMED:
        parts.append(f"and {len(wrong) - NAMED} more")
    live = sum(peer.state in LIVE for peer in known)
    count = f"{live} of {len(known)} peers can be reached" if lost else "No answer lately"
    short = f"{wrong[0].name} is {worded(wrong[0].state)}"
    if len(wrong) > 1:
        short = f"{len(wrong)} peers are {_common(wrong)}"
    return Headline(f"{count}: {'; '.join(parts)}.", short, bool(lost))


def worded(state: str) -> str:
    """Return a peer's state in the word for people."""
    return "offline" if state == "dead" else state


def _lost(peer: status_pb2.Peer) -> str:
    heard = f"last heard {duration(peer.heard_s)} ago" if peer.heard_s >= 0 else "never heard"
    reason = f", {peer.reason.rstrip('.')}" if peer.reason else ""
    return f"{peer.name} is {worded(peer.state)} ({heard}{reason})"


def _common(peers: Sequence[status_pb2.Peer]) -> str:
    states = {peer.state for peer in peers}
    return worded(states.pop()) if len(states) == 1 else "lost"
