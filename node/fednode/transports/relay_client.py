"""A node's end of relays: it waits to be called, takes calls into its own server, dials others.

gRPC reaches a relayed peer through a unix socket of this process: each connection to it becomes a
`Dial` at a relay. A call that comes in is led to the socket on which the node's own server listens.
What runs through is TLS between the two nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from fednode.errors import Unreachable
from fednode.identity.certificates import Credential, host_of
from fednode.identity.roster import Roster
from fednode.transports.base import Address
from fednode.transports.credentials import Own, channel_credentials
from fednode.transports.relay_service import DIAL, PING_S, TAKE, TICKET, TO, WAIT
from fednode.transports.server import KEEPALIVE

CHUNK_BYTES: Final = 256 << 10
AGAIN_S: Final = 0.5
"""Pause before a node waits again at a relay that it lost."""
RENEW_GRACE_S: Final = 30.0
SILENT_S: Final = 3 * PING_S
PATHS_MAX: Final = 1024
_OPTIONS: Final = (
    *KEEPALIVE,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 800),
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass(frozen=True, slots=True)
class RelayAt:
    """Where a relay is, and the name in its certificate."""

    address: Address
    name: str


class RelayClient:
    """All relays of one node. Everything runs on the event loop that made it."""

    def __init__(self, relays: Sequence[RelayAt], own: Own, roster: Roster) -> None:
        self._relays, self._own, self._roster = tuple(relays), own, roster
        self._folder = tempfile.TemporaryDirectory(prefix="fednode-")
        self.inside = f"{self._folder.name}/in"
        """Path of a socket at which the node's own server is to listen, too."""
        self.up: set[RelayAt] = set()
        """Relays at which this node waits."""
        self._channels: dict[RelayAt, tuple[Credential, Any]] = {}
        self._paths: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def wait(self) -> None:
        """Wait to be called at each relay from now on."""
        for relay in self._relays:
            self._spawn(self._stay(relay))

    def path_to(self, who: str) -> str:
        """Return the gRPC target that leads to a node through a relay."""
        if who in self._paths:
            return self._paths[who]
        if not self._relays or not who:
            raise Unreachable(f"cannot reach {who or 'a node without a name'} through a relay")
        if len(self._paths) >= PATHS_MAX:
            raise Unreachable(f"{PATHS_MAX:,} nodes are reached through relays already")
        path = str(Path(self._folder.name) / str(len(self._paths)))
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen()
        self._spawn(self._lead(who, listening))
        self._paths[who] = f"unix:{path}"
        return self._paths[who]

    async def close(self) -> None:
        """Leave all relays."""
        while self._tasks:  # a task that is cancelled may just have begun another one
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(channel.close() for _, channel in self._channels.values()))
        self._folder.cleanup()

    def _channel(self, relay: RelayAt) -> Any:
        """Return the channel to a relay; a new one if this node's certificate was renewed."""
        shown, held = self._own(), self._channels.get(relay)
        if held is not None and held[0] is shown:
            return held[1]
        if held is not None:
            self._spawn(held[1].close(RENEW_GRACE_S))
        name = ("grpc.ssl_target_name_override", host_of(relay.name))
        credentials = channel_credentials(self._own, self._roster)
        channel = grpc.aio.secure_channel(relay.address, credentials, options=(*_OPTIONS, name))
        self._channels[relay] = shown, channel
        return channel

    async def _stay(self, relay: RelayAt) -> None:
        """Wait at one relay for ever."""
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError, TimeoutError):
                tickets = self._channel(relay).unary_stream(WAIT)(b"")
                try:
                    while True:
                        async with asyncio.timeout(SILENT_S):
                            ticket = await tickets.read()
                        if ticket is grpc.aio.EOF:
                            break
                        self.up.add(relay)
                        if ticket:
                            self._spawn(self._take(relay, ticket))
                finally:
                    tickets.cancel()
                    self.up.discard(relay)
            await asyncio.sleep(AGAIN_S)

    async def _take(self, relay: RelayAt, ticket: bytes) -> None:
        """Lead a call into this node's own server."""
        call = self._channel(relay).stream_stream(TAKE)(metadata=((TICKET, ticket),))
        with contextlib.suppress(OSError, grpc.aio.AioRpcError), _cancelled(call):
            reader, writer = await asyncio.open_unix_connection(self.inside, limit=2 * CHUNK_BYTES)
            with contextlib.closing(writer):
                await _join(call, reader, writer)

    async def _lead(self, who: str, listening: socket.socket) -> None:
        """Lead each connection of a socket to a node, for ever."""

        async def out(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._spawn(self._dial(who, reader, writer))

        server = await asyncio.start_unix_server(out, sock=listening, limit=2 * CHUNK_BYTES)
        async with server:
            await server.serve_forever()

    async def _dial(
        self, who: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Lead a connection of this node to another one, through the first relay that knows it."""
        with contextlib.closing(writer):
            for relay in sorted(self._relays, key=lambda one: one not in self.up):
                call = self._channel(relay).stream_stream(DIAL)(metadata=((TO, who.encode()),))
                with contextlib.suppress(grpc.aio.AioRpcError), _cancelled(call):
                    await call.initial_metadata()
                    if not call.done():
                        await _join(call, reader, writer)
                        return

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@contextlib.contextmanager
def _cancelled(call: Any) -> Iterator[None]:
    """Cancel a call in the end."""
    try:
        yield
    finally:
        call.cancel()


async def _join(call: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes both ways between a stream of gRPC and a socket, until one of them ends."""

    async def out() -> None:
        while data := await reader.read(CHUNK_BYTES):
            await call.write(data)

    async def back() -> None:
        while (data := await call.read()) is not grpc.aio.EOF:
            writer.write(data)
            await writer.drain()

    ways = [asyncio.ensure_future(way) for way in (out(), back())]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
