"""Ask other nodes of the mesh for their status, as `fednode status` does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import grpc

from fednode.errors import FednodeError
from fednode.wire.gen import status_pb2, status_pb2_grpc
from fednode.wire.replies import clean

ASKED_MAX: Final = 32
ASK_S: Final = 1.0
REPLY_BYTES_MAX: Final = 1 << 20


async def ask(
    dial: Callable[..., Awaitable[Any]], addresses: Mapping[str, str], names: Sequence[str]
) -> dict[str, status_pb2.StatusReply]:
    """Return the status of nodes, safe to show; nodes that do not answer soon are left out.

    dial: returns a channel to an address and a name, and takes the size of the longest reply. Only
    the first ASKED_MAX names are asked.
    """

    async def one(name: str) -> status_pb2.StatusReply | None:
        try:
            channel = await dial(addresses[name], name, REPLY_BYTES_MAX)
            try:
                stub = status_pb2_grpc.NodeStub(channel)
                request = status_pb2.StatusRequest()
                reply: status_pb2.StatusReply = await stub.Status(request, timeout=ASK_S)
            finally:
                await channel.close()
        except (FednodeError, grpc.RpcError, OSError):
            return None
        return clean(reply)

    asked = names[:ASKED_MAX]
    found = await asyncio.gather(*map(one, asked))
    return {name: reply for name, reply in zip(asked, found, strict=True) if reply is not None}
