"""The transport of a node: one server, and a channel for each peer, with the same certificate."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import grpc.aio

from fednode.errors import AddressError
from fednode.identity.roster import Roster
from fednode.transports.address import Endpoint, RelayEntry
from fednode.transports.base import Address, OnFrame
from fednode.transports.connection_limiter import ALL_MAX, CALLS_S, ConnectionLimiter
from fednode.transports.credentials import Own, caller_of, server_credentials
from fednode.transports.exchange import ExchangeService
from fednode.transports.framing import PIECE_BYTES
from fednode.transports.limits import Limits, Note
from fednode.transports.peers import Peers
from fednode.transports.relay_client import Say
from fednode.transports.server import (
    AROUND_BYTES,
    CALLS_MAX,
    CLOSE_GRACE_S,
    OPTIONS,
    Register,
    check_free,
    in_use,
    socket_folder,
)

MESSAGE_BYTES_MAX: Final = PIECE_BYTES + AROUND_BYTES


class GrpcTransport(Peers):
    """Serve and send frames over gRPC: over mutual TLS, or without keys on loopback.

    With keys, connections come in through a ConnectionLimiter.
    """

    def __init__(
        self,
        own: Own | None = None,
        roster: Roster | None = None,
        relays: Sequence[RelayEntry] = (),
        *,
        say: Say = lambda *_: None,
        note: Note = lambda *_: None,
        proxy: str | None = None,
        calls_s: float = CALLS_S,
        connections_max: int = ALL_MAX,
    ) -> None:
        """Set up.

        own: returns what this node shows; another object once it was renewed. roster: who may call.
        Both are None without keys. relays: of the mesh. say: records whether they answer. note:
        records refused callers. proxy: the setting. calls_s: calls of a key in a second.
        connections_max: connections that come in, at a time.
        """
        super().__init__(own, roster, relays, say, proxy)
        self._limits = Limits(roster, note)
        self._calls_s, self._connections_max = calls_s, connections_max
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._server: Any = None
        self._services: list[Register] = []
        self._exchange = ExchangeService(self.caller)
        self._ended: asyncio.Task[None] | None = None

    def add_service(self, register: Register) -> None:
        self._services.append(register)

    async def listen(self, address: Address, on_frame: OnFrame | None) -> Address:
        """Serve at an address (port 0: any free port), frames if on_frame is given; return it."""
        endpoint = self._endpoint(address, "listen on")
        if self._ended is not None or self._server is not None:
            why = "listens already" if self._ended is None else "is closed"
            raise AddressError(f"cannot listen on {address}: this transport {why}")
        if not endpoint.relayed:
            check_free(endpoint)
        server = grpc.aio.server(
            options=(
                *OPTIONS,
                ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
                # Connections of all callers, with those in their handshake.
                ("grpc.max_allowed_incoming_connections", 2 * self._connections_max),
            ),
            interceptors=[self._limits],
            maximum_concurrent_rpcs=CALLS_MAX if self._own is None else None,
        )
        for register in self._services:
            register(server)
        if on_frame is not None:
            self._exchange.on_frame = on_frame
            self._exchange.register(server)
        try:
            endpoint = await self._open_port(server, endpoint)
        except (RuntimeError, OSError) as fault:
            raise in_use(endpoint) from fault
        self._server = server
        if self.relay is not None:
            self.relay.wait()
        return str(endpoint)

    async def _open_port(self, server: Any, endpoint: Endpoint) -> Endpoint:
        """Start a server: in plain text on a port, or with TLS on a socket behind the limiter."""
        if self._own is None or self._roster is None:
            port = server.add_insecure_port(str(Endpoint(endpoint.numeric, endpoint.port)))
            await server.start()
            return Endpoint(endpoint.host, port)
        self._folder = socket_folder()
        limiter = ConnectionLimiter(
            Path(self._folder.name), MESSAGE_BYTES_MAX, self._connections_max, self._calls_s
        )
        credentials = server_credentials(self._own, self._roster)
        server.add_secure_port(f"unix:{limiter.core}", credentials)
        await server.start()
        if self.relay is not None:
            await limiter.listen(path=self.relay.inside)
        if not endpoint.relayed:
            port = await limiter.listen(host=endpoint.numeric, port=endpoint.port)
            endpoint = Endpoint(endpoint.host, port)
        self._limits.connections = limiter
        return endpoint

    def expect(self, frame_bytes: int) -> None:
        self._exchange.expect(frame_bytes)

    def caller(self, context: Any) -> str | None:
        """Return the id behind a call; "" without keys; None if it may call no more."""
        if self._roster is None:
            return ""
        member = caller_of(context, self._roster)
        return None if member is None else member.id

    def disconnect(self, id: str, seconds: float) -> None:
        if self._limits.connections is not None:
            self._limits.connections.ban(id, seconds)

    async def close(self) -> None:
        """Stop serving, let calls end for CLOSE_GRACE_S, then drop all connections. Idempotent."""
        if self._ended is None:
            self._ended = asyncio.ensure_future(self._close())
        await asyncio.shield(self._ended)

    async def _close(self) -> None:
        await self._close_channels()
        connections = self._limits.connections
        if connections is not None:
            connections.stop_accepting()
        if self._server is not None:
            await self._server.stop(CLOSE_GRACE_S)
        if connections is not None:
            connections.close()
        if self._folder is not None:
            self._folder.cleanup()
        if self.relay is not None:
            await self.relay.close()
