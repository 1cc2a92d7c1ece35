"""Ask several nodes for their status at once; a node that does not answer is no error."""

from __future__ import annotations

import asyncio

from fednode.app.reach import Target, Targets
from fednode.errors import FednodeError
from fednode.observe.client import Client
from fednode.wire.gen import status_pb2

Replies = list[tuple[Target, status_pb2.StatusReply | None]]


async def ask_all(client: Client, targets: Targets) -> Replies:
    """Return each node with its status, or None if it does not answer."""

    async def ask(where: str) -> status_pb2.StatusReply | None:
        try:
            return await client.status(where)
        except FednodeError:
            return None

    replies = await asyncio.gather(*(ask(where) for _, where in targets))
    return list(zip(targets, replies, strict=True))
