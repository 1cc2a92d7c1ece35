"""The gRPC transport: one server, and one cached channel per peer.

A frame up to 1 MiB is one unary call, a larger frame a stream of pieces. Every call has a deadline,
and both ends send keepalive pings. A peer that went away is dialled again with pauses of at most
0.8 s. Every gRPC error becomes Unreachable or AddressError here. Without keys
(node/fednode/transports/tls.py) the transport listens on loopback and dials loopback only.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import grpc
import grpc.aio

from fednode.errors import AddressError, FrameError, Unreachable
from fednode.transports.address import ADDRESSES_MAX, Endpoint, parse
from fednode.transports.base import Address, OnFrame
from fednode.transports.calls import Calls
from fednode.transports.dial_limiter import DialLimiter, Place
from fednode.transports.exchange import (
    DELIVER,
    DELIVER_CHUNKS,
    ExchangeService,
    opened,
    pieces,
    wrapped,
)
from fednode.transports.exits import OPEN
from fednode.transports.framing import FRAME_BYTES_MAX, PIECE_BYTES, REPLY_BYTES_MAX, wire_bytes
from fednode.transports.gates import check_free, in_use
from fednode.transports.tls import Tls

__all__ = ["GrpcTransport", "Register", "dial", "wire_bytes"]

Register = Callable[[Any], None]
"""Adds a servicer to a grpc.aio server, such as a generated add_..._to_server function."""

# Limits of calls at a time: of all callers without keys, on one connection, from here to one peer.
CALLS_MAX: Final = 256
STREAMS_MAX: Final = 64
CALLS_PER_PEER: Final = 32
CLOSE_GRACE_S: Final = 0.5
RENEW_GRACE_S: Final = 30.0
"""How long calls may go on in a connection that another one replaced."""
# The protobuf field around the bytes of a Frame.
_AROUND_BYTES: Final = 16
KEEPALIVE_S: Final = 20
"""Seconds between two pings of each end of a connection."""
# Servers allow pings every 10 s, so no client is told "too many pings".
_KEEPALIVE: Final = (
    ("grpc.keepalive_time_ms", 1000 * KEEPALIVE_S),
    # A connection that is lost on a busy machine costs a handshake, and makes it busier.
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
_SERVER_OPTIONS: Final = (
    *_KEEPALIVE,
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    # Off: otherwise two daemons could share a port, and each would get half of the messages.
    ("grpc.so_reuseport", 0),
)
_CHANNEL_OPTIONS: Final = (
    *_KEEPALIVE,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 800),
    # How long a connection may take to come up, TLS included: on bad links round trips are long,
    # and the other end may be busy.
    ("grpc.min_reconnect_backoff_ms", 12_000),
    # Peers are addressed directly; a proxy of the environment is for other traffic.
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


class GrpcTransport:
    """Serve and send frames over gRPC: over mutual TLS, or without it on loopback.

    Other services at the node's address are added with `add_service` before `listen`.
    tls: belongs to this transport from now on, and is closed with it. streams, message_bytes: calls
    at a time of a connection that comes in, and the bytes of a message in one of them.
    """

    def __init__(
        self,
        tls: Tls | None = None,
        streams: int = STREAMS_MAX,
        message_bytes: int = PIECE_BYTES + _AROUND_BYTES,
    ) -> None:
        self._tls = tls
        if tls is not None:
            tls.exits.renew = self._renew
            tls.serve_again = self._serve_again
        self._limits = (
            ("grpc.max_concurrent_streams", streams),
            ("grpc.max_receive_message_length", message_bytes),
        )
        self._services: list[Register] = []
        self._exchange: ExchangeService | None = None
        self._frame_bytes = FRAME_BYTES_MAX
        self._calls = Calls(self.caller)
        self._servers: list[Any] = []  # the last one takes connections
        self._peers: dict[Place, _Peer] = {}
        self._places = DialLimiter()
        self._dropped: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None

    def add_service(self, register: Register) -> None:
        """Register a function that adds a servicer to the server before it starts.

        Raise RuntimeError once the server listens, because gRPC takes no services after that.
        """
        if self._servers:
            raise RuntimeError("services are added before listen")
        self._services.append(register)

    async def listen(self, address: Address, on_frame: OnFrame | None) -> Address:
        """Serve at an address (port 0: any free port), frames if on_frame is given; return it."""
        endpoint = self._endpoint(address, "listen on")
        if self._closing is not None:
            raise AddressError(f"cannot listen on {address}: this transport is closed")
        if self._servers:
            raise AddressError(f"cannot listen on {address}: this transport listens already")
        if not endpoint.relayed:
            check_free(endpoint)
        if on_frame is not None:
            self._exchange = ExchangeService(on_frame, self.caller)
            self._exchange.expect(self._frame_bytes)
            self._services.append(self._exchange.register)
        place = str(Endpoint(endpoint.numeric, endpoint.port))
        try:
            port = await self._serve(self._tls.inside if self._tls else place)
        except RuntimeError as fault:
            raise in_use(endpoint) from fault
        if self._tls is None:
            return str(endpoint.at(port))
        self._tls.wait_at_relays()
        if not endpoint.relayed:
            endpoint = endpoint.at(await self._tls.listen(endpoint))
        return str(endpoint)

    async def _serve(self, place: str) -> int:
        """Let a server of gRPC listen; return its port.

        Raise RuntimeError if the port is taken, AddressError if a socket cannot be made.
        """
        server = grpc.aio.server(
            options=(*_SERVER_OPTIONS, *self._limits),
            interceptors=[self._calls],
            # With keys, the limits on connections per key and streams per connection apply.
            maximum_concurrent_rpcs=None if self._tls else CALLS_MAX,
        )
        for register in self._services:
            register(server)
        try:
            port = int(server.add_insecure_port(place))
        except RuntimeError as fault:
            if self._tls is None:
                raise
            text = f"gRPC makes no socket at {place} ({fault}): set TMPDIR to another folder"
            raise AddressError(text) from fault
        self._servers.append(server)
        await server.start()
        return port

    async def _serve_again(self) -> None:
        """Let another server listen, whose socket is there; raise AddressError if that fails.

        Calls under way at the one before may end.
        """
        if not self._servers or self._tls is None:
            return
        await self._serve(self._tls.inside)
        stopping = asyncio.ensure_future(self._retire(self._servers[-2]))
        self._dropped.add(stopping)
        stopping.add_done_callback(self._dropped.discard)

    async def _retire(self, server: Any) -> None:
        await server.stop(RENEW_GRACE_S)
        self._servers.remove(server)

    def caller(self, context: Any) -> str | None:
        """Return the id behind a call; "" without keys; None if no id belongs to the connection."""
        if self._tls is None:
            return ""
        return self._tls.caller(context.peer()) or None

    def source(self, context: Any) -> str:
        """Return where a call comes from; "" without keys."""
        return self._tls.source(context.peer()) if self._tls else ""

    async def channel(self, to: Address, who: str = "", reply_bytes_max: int = 4 << 20) -> Any:
        """Return a grpc.aio channel to a node's services, which reaches only the node `who`.

        The caller closes it. Raise AddressError for an address that is malformed or not allowed,
        and Unreachable for a peer that changes its address too often.
        """
        endpoint = self._endpoint(to, "send to")
        self._use((str(endpoint), who))
        if self._tls is None:
            return dial(to, reply_bytes_max)
        return _channel(await self._tls.exits.to(endpoint, who), reply_bytes_max)

    def _endpoint(self, address: Address, doing: str) -> Endpoint:
        return _loopback(address, doing) if self._tls is None else parse(address)

    async def send(self, to: Address, frame: bytes, timeout_s: float, who: str = "") -> bytes:
        """Deliver one frame and return the reply."""
        shown = who if self._endpoint(to, "send to").relayed and who else to
        if len(frame) > FRAME_BYTES_MAX:
            raise FrameError(
                f"a frame of {len(frame):,} bytes cannot be sent; the limit is {FRAME_BYTES_MAX:,}"
            )
        if self._closing is not None:
            raise Unreachable(f"cannot send to {to}: this transport is closed")
        clock, place = asyncio.get_running_loop().time, (str(parse(to)), who)
        deadline, peer = clock() + timeout_s, self._peers.get(place)
        try:
            if peer is None or peer.slots.locked():
                async with asyncio.timeout_at(deadline):
                    peer = await self._slot(to, who)
            else:  # the same, without its cost
                self._use(place)
                await peer.slots.acquire()
        except TimeoutError as fault:
            raise Unreachable(_late(shown, timeout_s)) from fault
        try:
            if self._closing is not None:
                raise Unreachable(_closed(shown))
            left_s = max(deadline - clock(), 0.0)
            with self._tls.exits.asking(place, left_s) if self._tls else OPEN:
                return await peer.deliver(frame, left_s)
        except grpc.aio.AioRpcError as fault:
            raise Unreachable(self.why(to, who) or _sentence(shown, fault, timeout_s)) from fault
        except asyncio.CancelledError as fault:
            # A channel that closes during a call cancels the call; our caller did not cancel it.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise Unreachable(_closed(shown)) from fault
        except (grpc.RpcError, grpc.aio.BaseError, OSError, ValueError, RuntimeError) as fault:
            raise Unreachable(f"cannot send to {shown}: {fault}") from fault
        finally:
            peer.slots.release()

    def expect(self, frame_bytes: int) -> None:
        """Keep room for frames of this size in pieces, and for no larger ones."""
        self._frame_bytes = frame_bytes
        if self._exchange is not None:
            self._exchange.expect(frame_bytes)

    def disconnect(self, id: str, seconds: float) -> None:
        """Close all connections with a key, and refuse new ones for some seconds."""
        if self._tls is not None:
            self._tls.turn_away(id, seconds)

    async def close(self) -> None:
        """Stop serving, let calls end for CLOSE_GRACE_S, then drop all connections. Idempotent."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._tls is not None:
            await self._tls.stop_sweeping()
        peers = list(self._peers.values())
        self._peers.clear()
        for peer in peers:
            await peer.channel.close()
        await asyncio.gather(*(server.stop(CLOSE_GRACE_S) for server in self._servers))
        await asyncio.gather(*self._dropped)
        if self._tls is not None:
            await self._tls.close()

    def why(self, to: Address, who: str) -> str:
        """Return what TLS found wrong at the last call to an address; "" for nothing."""
        text = self._tls.exits.fault(str(parse(to)), who) if self._tls else ""
        head = f"reach {who or 'it'}" if parse(to).relayed else f"send to {to}"
        return f"cannot {head}: {text}" if text else ""

    def barred(self, to: Address) -> bool:
        """Tell whether the last call to an address failed because this node's key is refused."""
        return self._tls is not None and self._tls.exits.barred(str(parse(to)), "")

    async def _peer(self, to: Address, who: str) -> _Peer:
        """Return the channel to a place; raise Unreachable if the place was given up meanwhile."""
        place = (str(parse(to)), who)
        if place in self._peers:
            self._use(place)
            return self._peers[place]
        channel = await self.channel(to, who, REPLY_BYTES_MAX)
        if place in self._peers or place not in self._places:
            await channel.close()
        else:
            self._peers[place] = _Peer(channel)
        if place not in self._peers:
            raise Unreachable(f"cannot send to {to}: {who!r} moved on")
        return self._peers[place]

    async def _slot(self, to: Address, who: str) -> _Peer:
        """Return the channel to a place, with one of its slots taken."""
        while True:
            peer = await self._peer(to, who)
            await peer.slots.acquire()
            if not peer.left:
                return peer
            peer.slots.release()

    def _renew(self, place: Place, cut: bool) -> None:
        """Open a new connection for the next calls to a place.

        cut: end calls under way; otherwise the old connection lasts until they end.
        """
        peer = self._peers.pop(place, None)
        if peer is not None:
            peer.left = True
            self._drop(peer, None if cut else RENEW_GRACE_S)

    def _use(self, place: Place) -> None:
        for gone in self._places.use(place, asyncio.get_running_loop().time()):
            self._give_up(gone)

    def _give_up(self, place: Place) -> None:
        """Close the channel to a place; calls under way there raise Unreachable."""
        if self._tls is not None:
            self._tls.exits.shut(parse(place[0]), place[1])
        if (peer := self._peers.pop(place, None)) is not None:
            self._drop(peer, None)

    def _drop(self, peer: _Peer, grace_s: float | None) -> None:
        dropping = asyncio.ensure_future(peer.channel.close(grace_s))
        self._dropped.add(dropping)
        dropping.add_done_callback(self._dropped.discard)


class _Peer:
    """The channel to one address.

    slots: calls at a time. The other end resets streams beyond its own limit. A new connection does
    not know that limit yet, so this side keeps to it. left: a new channel took its place.
    """

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.slots = asyncio.Semaphore(CALLS_PER_PEER)
        self.left = False
        self._whole = channel.unary_unary(DELIVER, wrapped, opened)
        self._cut = channel.stream_unary(DELIVER_CHUNKS, wrapped, opened)

    def deliver(self, frame: bytes, timeout_s: float) -> Awaitable[bytes]:
        """Begin the call that fits the frame's size."""
        if len(frame) <= PIECE_BYTES:
            call = self._whole(frame, timeout=timeout_s)
        else:
            call = self._cut(pieces(frame), timeout=timeout_s)
        return cast("Awaitable[bytes]", call)


def dial(address: Address, reply_bytes_max: int = 4 << 20) -> Any:
    """Return a grpc.aio channel to a node's other services, on loopback; the caller closes it.

    It connects at the first call. Raise AddressError if the address is not loopback.
    """
    endpoint = _loopback(address, "send to")
    family = "ipv6" if ":" in endpoint.numeric else "ipv4"
    return _channel(f"{family}:{Endpoint(endpoint.numeric, endpoint.port)}", reply_bytes_max)


def _channel(target: str, reply_bytes_max: int) -> Any:
    limit = ("grpc.max_receive_message_length", reply_bytes_max + _AROUND_BYTES)
    return grpc.aio.insecure_channel(target, options=(*_CHANNEL_OPTIONS, limit))


@functools.lru_cache(maxsize=ADDRESSES_MAX)
def _loopback(address: Address, doing: str) -> Endpoint:
    """Return the endpoint of an address; raise AddressError if it is not on this machine."""
    endpoint = parse(address)
    if not endpoint.loopback:
        raise AddressError(
            f"cannot {doing} {address}: without keys (insecure: true in peers.yaml) only loopback "
            "is allowed; use 127.0.0.1, [::1] or localhost"
        )
    return endpoint


def _sentence(to: Address, fault: grpc.aio.AioRpcError, timeout_s: float) -> str:
    """Return a sentence on the end of a call, for the caller."""
    code = fault.code()
    if code == grpc.StatusCode.UNAVAILABLE:
        return f"nobody answers at {to}"
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return _late(to, timeout_s)
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return f"who listens at {to} is not a fednode node"
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return f"{to} takes no more calls at the moment"
    if code == grpc.StatusCode.CANCELLED:
        return _closed(to)
    return f"{to} failed to answer: {code.name.lower()}"


def _late(to: Address, timeout_s: float) -> str:
    return f"{to} did not answer within {timeout_s:.3g} s"


def _closed(to: Address) -> str:
    return f"the connection to {to} was closed before the answer"
