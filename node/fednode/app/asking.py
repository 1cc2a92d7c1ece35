"""Ask several nodes for their status at once; a node that does not answer is no error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from fednode.errors import FednodeError
from fednode.observe.client import Client
from fednode.transports.address import asked_at
from fednode.wire.gen import status_pb2

if TYPE_CHECKING:  # `fednode status ADDRESS` starts without settings
    from fednode.app.plan import NodePlan

Target = tuple[str, str]
"""Name and address of a node; the name is empty if only an address was given."""
Targets = Sequence[Target]
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
    return replies + await _ask(client, await _unlisted(client, replies))


async def everyone(client: Client, targets: Targets) -> Targets:
    """Return the nodes, and the further members that those nodes name which answer."""
    return [*targets, *await _unlisted(client, await _ask(client, targets))]


async def ask_peers(plan: NodePlan) -> tuple[list[status_pb2.Peer], FednodeError | None]:
    """Return the peers that a plan's node knows; none, and why, if it does not answer."""
    from fednode.app.client import client_of, place_of

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


async def _unlisted(client: Client, replies: Replies) -> Targets:
    known = {reply.name for _, reply in replies if reply is not None}
    known |= {name for (name, _), _ in replies}
    more = dict[str, str]()
    for _, reply in replies:
        named = () if reply is None else reply.peers
        new = [
            peer
            for peer in named
            if peer.name not in known and peer.state not in GONE and peer.address
        ]
        more |= {peer.name: asked_at(peer.address, peer.name) for peer in new}
    return sorted(more.items())[:MORE_MAX]
