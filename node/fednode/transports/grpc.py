"""The transport of a node: one server, and a channel for each peer, with the same certificate."""

from __future__ import annotations

import asyncio
from typing import Any

from fednode.errors import AddressError
from fednode.identity.roster import Roster
from fednode.transports.base import Address, OnFrame
from fednode.transports.connection_limiter import CALLS_S
from fednode.transports.credentials import Own, caller_of
from fednode.transports.exchange import ExchangeService
from fednode.transports.framing import FRAME_BYTES_MAX
from fednode.transports.limits import Limits, Note
from fednode.transports.peers import Learn, Peers
from fednode.transports.relay_client import RelayClient
from fednode.transports.server import Register, Server


class GrpcTransport(Peers):
    """Serve and send frames over gRPC: over mutual TLS, or without keys on loopback."""

    def __init__(
        self,
        own: Own | None = None,
        roster: Roster | None = None,
        relay: RelayClient | None = None,
        *,
        learn: Learn = lambda _: False,
        note: Note = lambda *_: None,
        proxy: str | None = None,
        calls_s: float = CALLS_S,
    ) -> None:
        """Set up.

        own: returns what this node shows; another object once it was renewed. roster: who may call.
        Both are None without keys. relay: belongs to this transport from now on, and is closed with
        it. learn: takes the proof that a node sends with a refusal; tells whether it revokes this
        node's key. note: records refused callers. proxy: the setting. calls_s: calls of a key in a
        second.
        """
        super().__init__(own, roster, relay, learn, proxy)
        self._limits, self._calls_s = Limits(roster, note), calls_s
        self._server: Server | None = None
        self._services: list[Register] = []
        self._exchange: ExchangeService | None = None
        self._frame_bytes = FRAME_BYTES_MAX
        self._ended: asyncio.Task[None] | None = None

    def add_service(self, register: Register) -> None:
        self._services.append(register)

    async def listen(self, address: Address, on_frame: OnFrame | None) -> Address:
        """Serve at an address (port 0: any free port), frames if on_frame is given; return it."""
        endpoint = self._endpoint(address, "listen on")
        if self._ended is not None:
            raise AddressError(f"cannot listen on {address}: this transport is closed")
        if self._server is not None:
            raise AddressError(f"cannot listen on {address}: this transport listens already")
        services = list(self._services)
        if on_frame is not None:
            self._exchange = ExchangeService(on_frame, self.caller)
            self._exchange.expect(self._frame_bytes)
            services.append(self._exchange.register)
        server = Server(self._own, self._roster, self._limits, calls_s=self._calls_s)
        inside = self.relay.inside if self.relay is not None else ""
        bound = await server.start(endpoint, services, inside)
        self._server = server
        if self.relay is not None:
            self.relay.wait()
        return str(bound)

    def caller(self, context: Any) -> str | None:
        """Return the id behind a call; "" without keys; None if it may call no more."""
        if self._roster is None:
            return ""
        member = caller_of(context, self._roster)
        return None if member is None else member.id

    def expect(self, frame_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        if self._exchange is not None:
            self._exchange.expect(frame_bytes)

    def disconnect(self, id: str, seconds: float) -> None:
        if self._server is not None and self._server.connections is not None:
            self._server.connections.ban(id, seconds)

    async def close(self) -> None:
        """Stop serving, let calls end, then drop all connections. Idempotent."""
        if self._ended is None:
            self._ended = asyncio.ensure_future(self._close())
        await asyncio.shield(self._ended)

    async def _close(self) -> None:
        await self._close_channels()
        if self._server is not None:
            await self._server.close()
        if self.relay is not None:
            await self.relay.close()
