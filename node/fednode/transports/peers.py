"""A channel for each peer: directly, and through a relay where that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import grpc
import grpc.aio

from fednode.errors import FrameError, Unreachable
from fednode.identity.certificates import Credential, host_of
from fednode.identity.roster import Roster
from fednode.transports.address import Endpoint, parse
from fednode.transports.base import Address
from fednode.transports.credentials import Own, channel_credentials
from fednode.transports.exchange import DELIVER, DELIVER_CHUNKS, opened, pieces, wrapped
from fednode.transports.framing import FRAME_BYTES_MAX, PIECE_BYTES, REPLY_BYTES_MAX
from fednode.transports.limits import REVOCATION
from fednode.transports.relay_client import RelayClient
from fednode.transports.server import AROUND_BYTES, KEEPALIVE

CALLS_PER_PEER: Final = 32
"""Calls at a time from here to one peer. A new connection does not know the peer's own limit."""
PEERS_MAX: Final = 1024
RELAY_AFTER: Final = 2
"""Calls in a row that reach nobody, before a peer is called through a relay."""
DIRECT_AGAIN_S: Final = 60.0
RENEW_GRACE_S: Final = 30.0
_OPTIONS: Final = (
    *KEEPALIVE,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 800),
    # How long a connection may take to come up, TLS included: on bad links round trips are long.
    ("grpc.min_reconnect_backoff_ms", 12_000),
    # Peers are addressed directly; a proxy of the environment is for other traffic.
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
# What gRPC says of a connection that does not come up, and what it means.
_HANDSHAKES: Final = {
    "Hostname Verification": "is another node than the one that is called",
    "handshake failed": "shows a certificate of another mesh, or the clocks differ",
    "Socket closed": "closed the connection: it knows no such certificate, or the clocks differ",
}
Reach = Literal["auto", "direct", "relay"]
Place = tuple[Address, str]
Learn = Callable[[bytes], None]
"""Takes the proof that this node's own key was revoked."""


@dataclass(slots=True)
class _Route:
    """How calls to a place went. relayed_until: when the direct way is tried again."""

    failures: int = 0
    relayed_until: float = 0.0


class _Peer:
    """A channel, with a slot for each call at a time. shown: the certificate that it shows."""

    def __init__(self, channel: Any, shown: Credential | None) -> None:
        self.channel, self.shown = channel, shown
        self.slots = asyncio.Semaphore(CALLS_PER_PEER)
        self._whole = channel.unary_unary(DELIVER, wrapped, opened)
        self._cut = channel.stream_unary(DELIVER_CHUNKS, wrapped, opened)

    def deliver(self, frame: bytes, timeout_s: float) -> Awaitable[bytes]:
        """Begin the call that fits the frame's size."""
        if len(frame) <= PIECE_BYTES:
            call = self._whole(frame, timeout=timeout_s)
        else:
            call = self._cut(pieces(frame), timeout=timeout_s)
        return cast("Awaitable[bytes]", call)


class Peers:
    """Send frames to peers."""

    def __init__(
        self,
        own: Own | None,
        roster: Roster | None,
        relay: RelayClient | None = None,
        reach: Reach = "auto",
        learn: Learn = lambda _: None,
    ) -> None:
        """Set up. own, roster: what to show and whom to believe; None without keys."""
        self._own, self._roster = own, roster
        self._relay, self._reach, self._learn = relay, reach, learn
        self._peers: dict[tuple[Place, bool], _Peer] = {}
        self._routes: dict[Place, _Route] = {}
        self._closing = False
        self._dropped: set[asyncio.Task[None]] = set()

    async def send(self, to: Address, frame: bytes, timeout_s: float, who: str = "") -> bytes:
        """Deliver one frame and return the reply; raise Unreachable, or FrameError if too large."""
        endpoint = parse(to)
        if len(frame) > FRAME_BYTES_MAX:
            raise FrameError(
                f"a frame of {len(frame):,} bytes cannot be sent; the limit is {FRAME_BYTES_MAX:,}"
            )
        if self._closing:
            raise Unreachable(f"cannot send to {to}: this transport is closed")
        shown = who if endpoint.relayed and who else to
        place, clock = (str(endpoint), who), asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        route = self._routes.setdefault(place, _Route())
        relayed = self._relayed(endpoint, route, clock())
        try:
            peer = self._peer(place, relayed)
            async with asyncio.timeout_at(deadline):
                await peer.slots.acquire()
        except TimeoutError as fault:
            raise Unreachable(_late(shown, timeout_s)) from fault
        try:
            if self._closing:
                raise Unreachable(_closed(shown))
            reply = await peer.deliver(frame, max(deadline - clock(), 0.0))
            route.failures = 0
            return reply
        except grpc.aio.AioRpcError as fault:
            self._note(route, fault, relayed, clock())
            raise Unreachable(_sentence(shown, fault, timeout_s)) from fault
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

    def channel(
        self, to: Address, who: str = "", reply_bytes_max: int = 4 << 20, relayed: bool = False
    ) -> Any:
        """Return a grpc.aio channel to a node's services; the caller closes it."""
        endpoint = parse(to)
        if relayed or endpoint.relayed:
            if self._relay is None:
                raise Unreachable(f"cannot reach {who or to}: it needs a relay, and none is known")
            target = self._relay.path_to(who)
        else:
            family = "ipv6" if ":" in endpoint.numeric else "ipv4"
            at = Endpoint(endpoint.numeric, endpoint.port)
            numeric = endpoint.numeric.replace(".", "").isdigit() or family == "ipv6"
            target = f"{family}:{at}" if numeric else f"dns:///{at}"
        most = ("grpc.max_receive_message_length", reply_bytes_max + AROUND_BYTES)
        return open_channel(target, self._own, self._roster, who, (most,))

    async def close(self) -> None:
        """Close all channels; calls under way raise Unreachable."""
        self._closing = True
        peers = list(self._peers.values())
        self._peers.clear()
        await asyncio.gather(*(peer.channel.close() for peer in peers), *self._dropped)

    def _relayed(self, endpoint: Endpoint, route: _Route, now: float) -> bool:
        if self._relay is None or self._reach == "direct":
            return endpoint.relayed
        return endpoint.relayed or self._reach == "relay" or now < route.relayed_until

    def _note(self, route: _Route, fault: Any, relayed: bool, now: float) -> None:
        """Learn from a call that failed."""
        for key, value in fault.trailing_metadata() or ():
            if key == REVOCATION:
                self._learn(value)
        if fault.code() is not grpc.StatusCode.UNAVAILABLE:
            route.failures = 0
            return
        route.failures += 1
        if relayed or route.failures >= RELAY_AFTER:
            route.failures = 0
            route.relayed_until = 0.0 if relayed else now + DIRECT_AGAIN_S

    def _peer(self, place: Place, relayed: bool) -> _Peer:
        """Return the channel to a place; a new one if this node's certificate was renewed."""
        shown = self._own() if self._own is not None else None
        key = place, relayed
        peer = self._peers.get(key)
        if peer is not None and peer.shown is shown:
            return peer
        channel = self.channel(place[0], place[1], REPLY_BYTES_MAX, relayed)
        if peer is None and len(self._peers) >= PEERS_MAX:
            key_gone = next(iter(self._peers))
            self._drop(self._peers.pop(key_gone), None)
            self._routes.pop(key_gone[0], None)
        if peer is not None:
            self._drop(peer, RENEW_GRACE_S)
        self._peers[key] = _Peer(channel, shown)
        return self._peers[key]

    def _drop(self, peer: _Peer, grace_s: float | None) -> None:
        dropping = asyncio.ensure_future(peer.channel.close(grace_s))
        self._dropped.add(dropping)
        dropping.add_done_callback(self._dropped.discard)


def open_channel(
    target: str,
    own: Own | None,
    roster: Roster | None,
    who: str,
    options: tuple[tuple[str, int], ...] = (),
) -> Any:
    """Return a channel to one gRPC target, which reaches only the node `who` ("": any node)."""
    if own is None or roster is None:
        return grpc.aio.insecure_channel(target, options=(*_OPTIONS, *options))
    name = ("grpc.ssl_target_name_override", host_of(who))
    credentials = channel_credentials(own, roster)
    return grpc.aio.secure_channel(target, credentials, options=(*_OPTIONS, *options, name))


def _sentence(to: str, fault: grpc.aio.AioRpcError, timeout_s: float) -> str:
    """Return a sentence on the end of a call, for the caller."""
    code, details = fault.code(), fault.details() or ""
    if code == grpc.StatusCode.UNAVAILABLE:
        said = [sentence for part, sentence in _HANDSHAKES.items() if part in details]
        return f"{to} {said[0]}" if said else f"nobody answers at {to}"
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return _late(to, timeout_s)
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return f"who listens at {to} is not a fednode node"
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return f"{to} takes no more calls at the moment"
    if code == grpc.StatusCode.PERMISSION_DENIED:
        return f"{to} refuses this node: {details}"
    if code == grpc.StatusCode.CANCELLED:
        return _closed(to)
    return f"{to} failed to answer: {code.name.lower()}"


def _late(to: str, timeout_s: float) -> str:
    return f"{to} did not answer within {timeout_s:.3g} s"


def _closed(to: str) -> str:
    return f"the connection to {to} was closed before the answer"
