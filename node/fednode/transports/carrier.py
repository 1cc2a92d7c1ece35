"""Copy the bytes of a relay's streams, at the rate that each key may have."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from fednode.transports.session import Ends

PIECE: Final = 16 << 10
"""The most bytes that are copied at a time."""
UNSENT_BYTES: Final = 16 << 10
SOCKET_BYTES: Final = 128 << 10
LEAST_PIECE: Final = 1024
"""A smaller piece costs as much of `relay.mbit`, because each piece costs the relay work."""
Side = tuple[str, Ends]
"""An end of a stream, and the id of the key there."""


@dataclass(slots=True)
class Counts:
    """Counts of a relay since its start. refused: by reason."""

    streams: int = 0
    bytes: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class Carrier:
    """Copies bytes both ways. Everything runs on the event loop that made it."""

    def __init__(self, counts: Counts, mbit: float) -> None:
        """Set up. mbit: megabits a second that one key may send; 0: no limit."""
        self._counts, self._rate = counts, mbit * 1e6 / 8
        self._paid: dict[str, float] = {}  # by key: when what it sent is paid for

    async def carry(self, caller: Side, called: Side, most: int) -> None:
        """Copy until either end closes, or has sent `most` bytes."""
        ways = [
            asyncio.ensure_future(self._copy(*caller, called[1], most)),
            asyncio.ensure_future(self._copy(*called, caller[1], most)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    def sweep(self, now: float) -> None:
        """Forget what is paid for."""
        self._paid = {id: until for id, until in self._paid.items() if until > now}

    async def _copy(self, id: str, source: Ends, target: Ends, most: int) -> None:
        while (data := await source.reader.read(PIECE)) and len(data) <= most:
            most -= len(data)
            target.writer.write(data)
            self._counts.bytes += len(data)
            await target.writer.drain()
            if self._rate:
                await self._pay(id, len(data))

    async def _pay(self, id: str, size: int) -> None:
        """Wait for as long as a key sends more than its rate."""
        now = asyncio.get_running_loop().time()
        until = max(self._paid.get(id, now), now) + max(size, LEAST_PIECE) / self._rate
        self._paid[id] = until
        if until - now > 0.05:
            await asyncio.sleep(until - now)


def spare(writer: asyncio.StreamWriter) -> None:
    """Let a connection hold little: small buffers of the system and of the event loop."""
    writer.transport.set_write_buffer_limits(high=UNSENT_BYTES)
    own = writer.get_extra_info("socket")
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        own.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
