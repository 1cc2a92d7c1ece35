"""The client of the Node service: read a daemon's status and history, watch it, send it commands.

Importing this file does not import torch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fednode.core import foreign
from fednode.errors import AddressError, FednodeError, KeyRefused, Refused, Unreachable
from fednode.transports.address import Endpoint, parse
from fednode.transports.grpc import GrpcTransport
from fednode.wire.gen import status_pb2, status_pb2_grpc
from fednode.wire.gen.status_pb2 import SettingsReply, StatusReply
from fednode.wire.replies import clean

TIMEOUT_S: Final = 3.0
ASKED_MAX: Final = 32
"""Most members that a node asks at a time."""
ASK_S: Final = 1.0
"""Seconds within which a member answers that is asked beside others."""
REPLY_BYTES_MAX: Final = 1 << 20
HISTORY_PAGE: Final = 1000
# A bound on what one history call gathers: a million rounds.
HISTORY_PAGES_MAX: Final = 1000
Dial = Callable[..., Awaitable[Any]]
"""Returns a channel to an address and a name; takes the size of the longest reply."""
NOBODY: Final = "nobody answers"
_OF_TRANSPORT: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED})
CHANNEL_OPTIONS: Final = (
    # A stream may be silent for long; pings tell whether its node is still there.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Peers are addressed directly; a proxy of the environment is for other traffic.
    ("grpc.enable_http_proxy", 0),
    # A new node at the address of one that ended is not met with the old one's back-off.
    ("grpc.use_local_subchannel_pool", 1),
    # A daemon that is just starting must be noticed soon, not after a minute of back-off.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class Client(contextlib.AbstractAsyncContextManager["Client"]):
    """Talk to any number of daemons; an async context manager that drops its connections.

    Every call but a `watch` that follows ends within timeout_s seconds. It raises Unreachable if
    nobody answers, Refused if the other end refuses, and AddressError for an address that is not
    host:port. Replies are safe to show (node/fednode/core/foreign.py).
    """

    def __init__(
        self,
        timeout_s: float = TIMEOUT_S,
        transport: GrpcTransport | None = None,
        hint: str = "",
        shown: Callable[[], str] = lambda: "",
    ) -> None:
        """Set up.

        transport: for a mesh that speaks TLS; it is closed with the client. hint: what else to try
        if nobody answers. shown: returns what is wrong with the certificate that the client shows,
        because a node that refuses it in the handshake cannot say why.
        """
        self._timeout_s, self._hint, self._shown = timeout_s, hint, shown
        self._transport = transport
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def status(self, address: str) -> StatusReply:
        reply: StatusReply = await self._ask(address, "Status", status_pb2.StatusRequest())
        return reply

    async def peers(self, address: str) -> list[status_pb2.Peer]:
        """Return the peers of the node at an address, with their ids and certificates."""
        return list((await self._ask(address, "Peers", status_pb2.PeersRequest())).peers)

    async def settings(self, address: str) -> SettingsReply:
        reply: SettingsReply = await self._ask(address, "Settings", status_pb2.SettingsRequest())
        return reply

    async def health(self, address: str, who: str) -> None:
        """Call what listens at an address, which must show the certificate of a name.

        Raise Unreachable or Refused if no server of gRPC answers there.
        """
        assert self._transport is not None, "only meshes with certificates have relays"
        channel = await self._transport.channel(address, who)
        try:
            request = health_pb2.HealthCheckRequest()
            stub = health_pb2_grpc.HealthStub(channel)
            await stub.Check(request, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.UNIMPLEMENTED:
                raise self._sentence(address, error) from None
        finally:
            await channel.close()

    async def history(self, address: str, since: int = 0) -> list[status_pb2.Round]:
        """Return the adopted rounds from `since` on, oldest first."""
        rounds: list[status_pb2.Round] = []
        for _ in range(HISTORY_PAGES_MAX):
            request = status_pb2.HistoryRequest(since=since, limit=HISTORY_PAGE)
            page = (await self._ask(address, "History", request)).rounds
            rounds.extend(page)
            if len(page) < HISTORY_PAGE:
                break
            since = page[-1].round + 1
        return rounds

    async def watch(
        self, address: str, since: int = 0, level: str = "info", follow: bool = True
    ) -> AsyncGenerator[status_pb2.Event]:
        """Yield the stored events after a number, then new events; it ends when the node ends.

        Without `follow` it ends after the stored events.
        """
        request = status_pb2.WatchRequest(since=since, level=level, follow=follow)
        async with self._call(address) as stub:
            # A stream that only waits has no deadline; keepalive finds a node that is gone.
            timeout = None if follow else self._timeout_s
            call = stub.Watch(request, timeout=timeout)
            try:
                async for event in call:
                    yield clean(event)
            finally:
                call.cancel()

    async def control(self, address: str, command: str, proof: bytes = b"") -> str:
        """Send a command; return what the node did.

        Commands: "pause", "resume", "resume --older-state", "leave", "alone"
        and, with a proof, "revoke" and "sponsor".
        """
        request = status_pb2.ControlRequest(command=command, proof=proof)
        return str((await self._ask(address, "Control", request)).text)

    async def close(self) -> None:
        """Drop all connections. Idempotent."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()
        if self._transport is not None:
            await self._transport.close()

    async def _ask(self, address: str, method: str, request: Message) -> Any:
        """Call a method of the node at an address; return its reply, safe to show."""
        async with self._call(address) as stub:
            return clean(await getattr(stub, method)(request, timeout=self._timeout_s))

    @contextlib.asynccontextmanager
    async def _call(self, address: str) -> AsyncIterator[Any]:
        """Yield a stub for an address; turn gRPC's errors into one sentence."""
        if address not in self._channels and self._transport is not None:
            self._channels[address] = await self._transport.channel(address)
        if address not in self._channels:
            endpoint = parse(address)
            if endpoint.relayed:
                raise AddressError(
                    f"{address} is reached through a relay of the mesh: give --peers peers.yaml."
                )
            target = str(Endpoint(endpoint.numeric, endpoint.port))
            self._channels[address] = grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
        try:
            yield status_pb2_grpc.NodeStub(self._channels[address])
        except grpc.aio.AioRpcError as error:
            raise self._sentence(address, error) from None

    def _sentence(self, address: str, error: grpc.aio.AioRpcError) -> FednodeError:
        code = error.code()
        if self._transport is not None and code in _OF_TRANSPORT:
            if fault := self._shown():
                return KeyRefused(f"The certificate that this command shows is refused: {fault}.")
            explained = self._transport.explain(address, error)
            text = str(explained).rstrip(".")
            if NOBODY not in text:
                return type(explained)(f"{text[0].upper()}{text[1:]}.")
        if code == grpc.StatusCode.UNAVAILABLE:
            return Unreachable(
                f"Nobody answers at {address}: start the node, or give the address in peers.yaml."
                + self._hint
            )
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return Unreachable(f"{address} did not answer within {self._timeout_s:g} s.")
        if code == grpc.StatusCode.UNIMPLEMENTED:
            return Refused(
                f"What listens at {address} is no fednode daemon, or one of another version."
            )
        return Refused(f"{address} refused: {foreign.line(error.details() or code.name)}")


async def ask(
    dial: Dial, addresses: Mapping[str, str], names: Sequence[str]
) -> dict[str, StatusReply]:
    """Return the status of nodes, safe to show; nodes that do not answer soon are left out.

    Only the first ASKED_MAX names are asked.
    """

    async def ask_peer(name: str) -> StatusReply | None:
        try:
            async with await dial(addresses[name], name, REPLY_BYTES_MAX) as channel:
                stub = status_pb2_grpc.NodeStub(channel)
                request = status_pb2.StatusRequest()
                reply: StatusReply = clean(await stub.Status(request, timeout=ASK_S))
                return reply
        except (FednodeError, grpc.RpcError, OSError):
            return None

    asked = names[:ASKED_MAX]
    replies = await asyncio.gather(*map(ask_peer, asked))
    return {name: reply for name, reply in zip(asked, replies, strict=True) if reply is not None}
