"""The transport of a node: one server, and a channel for each peer, with the same certificate."""

from __future__ import annotations

import asyncio
from typing import Any

from fednode.errors import AddressError
from fednode.identity.roster import Roster
from fednode.transports.address import Endpoint, parse
from fednode.transports.base import Address, OnFrame
from fednode.transports.credentials import Own, caller_of
from fednode.transports.exchange import ExchangeService
from fednode.transports.framing import FRAME_BYTES_MAX
from fednode.transports.limits import Limits
from fednode.transports.peers import Learn, Peers, Reach
from fednode.transports.relay_client import RelayClient
from fednode.transports.server import Register, Server


class GrpcTransport:
    """Serve and send frames over gRPC: over mutual TLS, or without keys on loopback."""

    def __init__(
        self,
        own: Own | None = None,
        roster: Roster | None = None,
        relay: RelayClient | None = None,
        reach: Reach = "auto",
        learn: Learn = lambda _: None,
        scale: float = 1.0,
    ) -> None:
        """Set up. relay: belongs to this transport from now on, and is closed with it.

        scale: of the bounds on connections, for measurements without them.
        """
        self._own, self._roster, self._relay, self._scale = own, roster, relay, scale
        self._limits = Limits(roster)
        self._peers = Peers(own, roster, relay, reach, learn)
        self._server: Server | None = None
        self._services: list[Register] = []
        self._exchange: ExchangeService | None = None
        self._frame_bytes = FRAME_BYTES_MAX
        self._closing: asyncio.Task[None] | None = None
        self.send = self._peers.send if own is not None else self._send

    def add_service(self, register: Register) -> None:
        """Register a function that adds a servicer to the server before it starts."""
        self._services.append(register)

    async def listen(self, address: Address, on_frame: OnFrame | None) -> Address:
        """Serve at an address (port 0: any free port), frames if on_frame is given; return it."""
        endpoint = self._endpoint(address, "listen on")
        if self._closing is not None:
            raise AddressError(f"cannot listen on {address}: this transport is closed")
        if self._server is not None:
            raise AddressError(f"cannot listen on {address}: this transport listens already")
        services = list(self._services)
        if on_frame is not None:
            self._exchange = ExchangeService(on_frame, self.caller)
            self._exchange.expect(self._frame_bytes)
            services.append(self._exchange.register)
        server = Server(self._own, self._roster, self._limits, self._scale)
        inside = self._relay.inside if self._relay is not None else ""
        found = await server.start(endpoint, services, inside)
        self._server = server
        if self._relay is not None:
            self._relay.wait()
        return str(found)

    def caller(self, context: Any) -> str | None:
        """Return the id behind a call; "" without keys; None for nobody's."""
        if self._roster is None:
            return ""
        found = caller_of(context, self._roster)
        return None if found is None else found.id

    async def channel(self, to: Address, who: str = "", reply_bytes_max: int = 4 << 20) -> Any:
        """Return a grpc.aio channel to a node's services; the caller closes it."""
        self._endpoint(to, "send to")
        return self._peers.channel(to, who, reply_bytes_max)

    async def _send(self, to: Address, frame: bytes, timeout_s: float, who: str = "") -> bytes:
        self._endpoint(to, "send to")
        return await self._peers.send(to, frame, timeout_s, who)

    def expect(self, frame_bytes: int) -> None:
        """Keep room for frames of this size in pieces, and for no larger ones."""
        self._frame_bytes = frame_bytes
        if self._exchange is not None:
            self._exchange.expect(frame_bytes)

    def turn_away(self, id: str, seconds: float) -> None:
        """Close all connections with a key, and refuse its calls for some seconds."""
        if self._server is not None and self._server.connections is not None:
            self._server.connections.ban(id, seconds)

    async def close(self) -> None:
        """Stop serving, let calls end, then drop all connections. Idempotent."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._peers.close()
        if self._server is not None:
            await self._server.close()
        if self._relay is not None:
            await self._relay.close()

    def _endpoint(self, address: Address, doing: str) -> Endpoint:
        endpoint = parse(address)
        if self._own is None and not endpoint.loopback:
            raise AddressError(
                f"cannot {doing} {address}: without keys (insecure: true in peers.yaml) only "
                "loopback is allowed; use 127.0.0.1, [::1] or localhost"
            )
        return endpoint
