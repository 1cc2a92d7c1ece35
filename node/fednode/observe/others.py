"""Ask other nodes of the mesh for their status."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import grpc

from fednode.core.view import Life
from fednode.errors import FednodeError
from fednode.observe import classes
from fednode.wire.gen import status_pb2, status_pb2_grpc
from fednode.wire.replies import clean

ASKED_MAX: Final = 32
ASK_S: Final = 1.0
REPLY_BYTES_MAX: Final = 1 << 20
AGAIN_S: Final = 5.0
"""After this time a peer is asked again that told no class names, because it was still loading."""
FRESH_S: Final = 60.0
"""After this time a peer is asked again for its class names."""
Dial = Callable[..., Awaitable[Any]]
"""Returns a channel to an address and a name; takes the size of the longest reply."""
Ask = Callable[[Sequence[str]], Awaitable[Mapping[str, status_pb2.StatusReply]]]
"""Returns the status of the peers that answer."""


class Classes:
    """The class names that peers told, and when to ask each peer again."""

    def __init__(self) -> None:
        self._told: dict[str, Sequence[str]] = {}
        self._again: dict[str, float] = {}
        self._silent: set[str] = set()

    def due(self, names: Sequence[str], now: float) -> list[str]:
        """Return which of the peers to ask now, at most ASKED_MAX."""
        return [name for name in names if self._again.get(name, now) <= now][:ASKED_MAX]

    def heard(
        self, asked: Sequence[str], replies: Mapping[str, status_pb2.StatusReply], now: float
    ) -> None:
        """Store what the peers that were asked answered."""
        for name in asked:
            told = list(replies[name].classes) if name in replies else []
            if told:
                self._told[name] = told
                self._silent.discard(name)
            elif name in replies and replies[name].life != Life.LOADING:
                self._told.pop(name, None)
                self._silent.add(name)
            self._again[name] = now + (FRESH_S if told else AGAIN_S)

    async def look(self, names: Sequence[str], ask: Ask) -> None:
        """Ask those of the peers for their class names who did not tell them lately."""
        now = asyncio.get_running_loop().time()
        due = self.due(names, now)
        self.heard(due, await ask(due), now)

    def said(self, own: Sequence[str]) -> list[str]:
        """Return sentences on the classes that only this node or only peers have."""
        silent = ", ".join(sorted(self._silent))
        hidden = f"not compared, because they tell no class names (data.tell_classes): {silent}"
        return [*classes.compared(own, self._told), *([hidden] if silent else [])]


async def ask(
    dial: Dial, addresses: Mapping[str, str], names: Sequence[str]
) -> dict[str, status_pb2.StatusReply]:
    """Return the status of nodes, safe to show; nodes that do not answer soon are left out.

    Only the first ASKED_MAX names are asked.
    """

    async def ask_peer(name: str) -> status_pb2.StatusReply | None:
        try:
            async with _open(dial, addresses[name], name) as channel:
                stub = status_pb2_grpc.NodeStub(channel)
                request = status_pb2.StatusRequest()
                reply: status_pb2.StatusReply = clean(await stub.Status(request, timeout=ASK_S))
                return reply
        except (FednodeError, grpc.RpcError, OSError):
            return None

    asked = names[:ASKED_MAX]
    replies = await asyncio.gather(*map(ask_peer, asked))
    return {name: reply for name, reply in zip(asked, replies, strict=True) if reply is not None}


@contextlib.asynccontextmanager
async def _open(dial: Dial, address: str, name: str) -> AsyncIterator[Any]:
    channel = await dial(address, name, REPLY_BYTES_MAX)
    try:
        yield channel
    finally:
        await channel.close()
