"""Ask several nodes for their status at once; a node that does not answer is no error."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from fednode.app.reach import Target, Targets
from fednode.errors import FednodeError
from fednode.observe.client import Client
from fednode.transports.address import RELAY
from fednode.wire.gen import status_pb2

if TYPE_CHECKING:  # `fednode status ADDRESS` starts without settings
    from fednode.app.plan import NodePlan

Replies = list[tuple[Target, status_pb2.StatusReply | None]]
GONE: Final = frozenset({"left", "revoked"})
MORE_MAX: Final = 128
"""Nodes that are asked although peers.yaml does not list them."""


async def ask_all(client: Client, targets: Targets) -> Replies:
    """Return each node with its status, or None if it does not answer.

    Members that joined later, and that peers.yaml does not list, are named by the nodes that
    answer; they are asked, too.
    """
    replies = await _ask(client, targets)
    return replies + await _ask(client, _unlisted(replies))


async def ask_peers(plan: NodePlan) -> tuple[list[status_pb2.Peer], FednodeError | None]:
    """Return the peers that a plan's node knows; none, and why, if it does not answer."""
    from fednode.app.network import client_of, place_of

    try:
        async with client_of(plan.peers, plan.state) as client:
            return await client.peers(place_of(plan)), None
    except FednodeError as fault:
        return [], fault


async def _ask(client: Client, targets: Targets) -> Replies:
    async def ask(where: str) -> status_pb2.StatusReply | None:
        try:
            return await client.status(where)
        except FednodeError:
            return None

    replies = await asyncio.gather(*(ask(where) for _, where in targets))
    return list(zip(targets, replies, strict=True))


def _unlisted(replies: Replies) -> Targets:
    known = {reply.name for _, reply in replies if reply is not None}
    known |= {name for (name, _), _ in replies}
    more = {
        peer.name: peer.address
        for _, reply in replies
        if reply is not None
        for peer in reply.peers
        if peer.name not in known and peer.state not in GONE and peer.address not in {"", RELAY}
    }
    return sorted(more.items())[:MORE_MAX]
