"""A channel for each peer: directly, and through a relay as long as no direct way works.

gRPC keeps trying the direct connection of a relayed peer. A call takes the direct way as soon as
that connection is up.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Sequence
from typing import Any, Final, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from fednode.core import foreign
from fednode.core.rate_limit import TokenBuckets
from fednode.errors import AddressError, FrameError, KeyRefused, Unreachable
from fednode.identity.certificates import Credential
from fednode.identity.roster import Roster
from fednode.transports.address import Endpoint, RelayEntry, parse, proxy_options, target_of
from fednode.transports.base import Address
from fednode.transports.credentials import Own, channel_to
from fednode.transports.exchange import DELIVER, DELIVER_CHUNKS, opened, pieces, wrapped
from fednode.transports.framing import FRAME_BYTES_MAX, PIECE_BYTES, REPLY_BYTES_MAX
from fednode.transports.limits import proofs_in
from fednode.transports.relay_client import OPTIONS, RENEW_GRACE_S, RelayClient, Say
from fednode.transports.server import AROUND_BYTES

CALLS_PER_PEER: Final = 32
"""Calls at a time from here to one peer. A new connection does not know the peer's own limit."""
DIRECT_FIRST_S: Final = 0.5
"""How long a call waits for a direct connection before it takes a relay."""
# What gRPC says of a connection that does not come up, and what it means.
_HANDSHAKES: Final = {
    "Hostname Verification": "is another node than the one that is called",
    "address lookup failed": "has a name that does not resolve",
    "handshake failed": "shows a certificate of another mesh, or of a sponsor or key that the mesh "
    "revoked, or the clocks differ",
    **dict.fromkeys(
        ("Socket closed", "Connection reset", "Broken pipe"),
        "closed the connection: it does not know this node's certificate, or stops",
    ),
}
_CLOSED: Final = "the connection to {to} was closed before the answer"
_FAILED: Final = "{to} failed to answer: {code}"
_SENTENCES: Final = {
    grpc.StatusCode.UNAVAILABLE: "nobody answers at {to}",
    grpc.StatusCode.UNIMPLEMENTED: "who listens at {to} is not a fednode node",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "{to} takes no more calls at the moment",
    grpc.StatusCode.CANCELLED: _CLOSED,
}
REVOKED: Final = "the mesh revoked this node's key: ask for a new link"
Place = tuple[Address, str]
"""An address, and the name of the peer dialled there ("" if the caller names no peer)."""
PLACES_MAX: Final = 1024
PER_PEER: Final = 2
"""Addresses kept for each peer: the present address and the address before it."""
MOVES_MAX: Final = 6
MINUTE_S: Final = 60.0
"""New addresses of one peer that are dialled at once, and on average within so many seconds."""
Ends = tuple[Credential, tuple[str, bytes]] | None
"""What this node shows, and what it demands of a callee (`Roster.callee`); None without keys."""


class DialLimiter:
    """The places in use; a new place replaces the least recently used. Callers give the time.

    A member announces its own address. Without a limit, a member that announces a new address in
    each message would cost a socket per address, and would make all others dial any address.
    """

    def __init__(self) -> None:
        self._used: OrderedDict[Place, None] = OrderedDict()
        self._moves = TokenBuckets(MOVES_MAX, MOVES_MAX / MINUTE_S)

    def use(self, place: Place, now: float) -> list[Place]:
        """Mark a place as dialled; return the places that are given up for it.

        Raise Unreachable if the peer has had too many new addresses lately.
        """
        if place in self._used:
            self._used.move_to_end(place)
            return []
        address, who = place
        if who and not self._moves.of(who, now).take():
            raise Unreachable(
                f"cannot send to {address}: {who!r} named more than {MOVES_MAX} new addresses in a "
                "minute; a further one is not dialled yet"
            )
        self._used[place] = None
        own = [used for used in self._used if used[1] == who] if who else []
        gone = [*own[:-PER_PEER], *(list(self._used)[:1] if len(self._used) > PLACES_MAX else [])]
        for place_gone in gone:
            self._used.pop(place_gone, None)
        return gone


class _Peer:
    """A channel, with a slot for each call at a time.

    ends: what each end is to show. relayed: it leads through a relay. reached: the node has
    answered in this channel.
    """

    def __init__(self, channel: Any, ends: Ends, relayed: bool) -> None:
        self.channel, self.ends, self.relayed, self.reached = channel, ends, relayed, False
        self.slots = asyncio.Semaphore(CALLS_PER_PEER)
        # Without deserializers: of an answer that they cannot read, gRPC makes None.
        self._whole = channel.unary_unary(DELIVER, wrapped)
        self._cut = channel.stream_unary(DELIVER_CHUNKS, wrapped)

    def deliver(self, frame: bytes, timeout_s: float) -> Awaitable[bytes]:
        """Begin the call that fits the frame's size."""
        if len(frame) <= PIECE_BYTES:
            call = self._whole(frame, timeout=timeout_s)
        else:
            call = self._cut(pieces(frame), timeout=timeout_s)
        return cast("Awaitable[bytes]", call)


class Peers:
    """The calls of a node to its peers. direct: try direct ways."""

    def __init__(
        self,
        own: Own | None,
        roster: Roster | None,
        relays: Sequence[RelayEntry],
        say: Say,
        proxy: str | None,
    ) -> None:
        """Set up. own, roster: what to show and whom to believe; None without keys."""
        self._own, self._roster, self._proxy = own, roster, proxy
        self.relay: RelayClient | None = None
        """This node's end of the relays; None without relays."""
        if relays and own is not None and roster is not None:
            self.relay = RelayClient(relays, own, roster, say=say, proxy=proxy)
            self.relay.draining = self._leave_relay
        self.direct = True
        self._peers: dict[tuple[Place, bool], _Peer] = {}
        self._relayed: dict[Place, bool] = {}  # the last call found no direct way
        self._dials = DialLimiter()
        self._closing = False
        self._dropped: set[asyncio.Task[None]] = set()

    async def send(self, to: Address, frame: bytes, timeout_s: float, who: str = "") -> bytes:
        """Deliver one frame and return the reply.

        Raise Unreachable, or FrameError if the frame is too large or the reply is none.
        """
        endpoint = self._endpoint(to, "send to")
        place = _place(endpoint, who)
        if len(frame) > FRAME_BYTES_MAX:
            raise FrameError(
                f"a frame of {len(frame):,} bytes cannot be sent; the limit is {FRAME_BYTES_MAX:,}"
            )
        shown = who if endpoint.relayed and who else to
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                peer = await self._choose(place, endpoint)
                await peer.slots.acquire()
        except TimeoutError as fault:
            raise Unreachable(_late(shown, timeout_s)) from fault
        try:
            if self._closing:
                raise Unreachable(_CLOSED.format(to=shown))
            reply = await peer.deliver(frame, max(deadline - clock(), 0.0))
            peer.reached = True
            return opened(reply)
        except DecodeError as fault:
            raise FrameError(f"the answer of {shown} is no frame") from fault
        except grpc.aio.AioRpcError as fault:
            if fault.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                self._suspect(place, peer)
            relay = self.relay if peer.relayed else None
            why = "" if relay is None else relay.fault(place[1])
            if why and fault.code() is grpc.StatusCode.UNAVAILABLE:
                raise Unreachable(f"cannot reach {shown} through a relay: {why}") from fault
            raise self.explain(shown, fault, timeout_s, peer.reached) from fault
        except asyncio.CancelledError as fault:
            # A channel that closes during a call cancels the call; our caller did not cancel it.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise Unreachable(_CLOSED.format(to=shown)) from fault
        except (grpc.RpcError, grpc.aio.BaseError, OSError, ValueError, RuntimeError) as fault:
            raise Unreachable(f"cannot send to {shown}: {fault}") from fault
        finally:
            peer.slots.release()

    async def channel(self, to: Address, who: str = "", reply_bytes_max: int = 4 << 20) -> Any:
        """Return a grpc.aio channel to a node's services, which reaches only the node `who`.

        It takes the way that works. The caller closes it. Raise AddressError for an address that is
        malformed or not allowed, and Unreachable for a peer that changes its address too often.
        """
        endpoint = self._endpoint(to, "send to")
        place = _place(endpoint, who)
        way = await self._choose(place, endpoint)
        return self._open(place, way.relayed, reply_bytes_max, way.ends)

    def path(self, to: Address, who: str) -> tuple[str, str]:
        """Return how a peer is reached, "direct" or "relay HOST:PORT", and why not directly."""
        endpoint = parse(to)
        place = _place(endpoint, who)
        if place not in self._relayed:
            return "", ""
        via = "" if self.relay is None else self.relay.way_to(place[1])
        if not self._relayed[place]:
            return "direct", ""
        why = "its address is `relay`" if endpoint.relayed else "it does not answer directly"
        return f"relay {via}", why

    def explain(
        self, to: str, fault: grpc.aio.AioRpcError, timeout_s: float = 0.0, reached: bool = False
    ) -> Unreachable:
        """Return why a call failed, in a sentence; KeyRefused if this node's key is refused.

        reached: the node has answered in this channel before.
        """
        code, details = fault.code(), foreign.line(fault.details() or "", 200)
        proofs = proofs_in(fault)
        if proofs and self._own is not None and self._roster is not None:
            self._roster.learn_revocations(proofs)
            if self._roster.has_revoked(self._own().chain):
                return KeyRefused(REVOKED)
        if code == grpc.StatusCode.PERMISSION_DENIED:
            return KeyRefused(f"{to} refuses this node: {details}")
        if code == grpc.StatusCode.UNAVAILABLE and not reached:
            means = [sentence for part, sentence in _HANDSHAKES.items() if part in details]
            if means:
                return Unreachable(f"{to} {means[0]}")
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return Unreachable(_late(to, timeout_s))
        return Unreachable(_SENTENCES.get(code, _FAILED).format(to=to, code=code.name.lower()))

    async def _close_channels(self) -> None:
        """Close all channels; calls under way raise Unreachable."""
        self._closing = True
        peers = list(self._peers.values())
        self._peers.clear()
        await asyncio.gather(*(peer.channel.close() for peer in peers), *self._dropped)

    def _endpoint(self, address: Address, doing: str) -> Endpoint:
        endpoint = parse(address)
        if self._own is None and not endpoint.loopback:
            raise AddressError(
                f"cannot {doing} {address}: without keys (insecure: true in peers.yaml) only "
                "loopback is allowed; use 127.0.0.1, [::1] or localhost"
            )
        return endpoint

    async def _choose(self, place: Place, endpoint: Endpoint) -> _Peer:
        """Return the channel of the way that works; the relay's if no other does."""
        if endpoint.relayed and not (self.relay is not None and place[1]):
            raise Unreachable(
                f"cannot reach {place[1] or 'it'}: it is reached through a relay, and none is known"
            )
        if self.relay is None or not place[1]:
            self._relayed[place] = False
            return self._peer(place, False)
        if endpoint.relayed or not self.direct:
            self._relayed[place] = True
            return self._peer(place, True)
        direct = self._peer(place, False)
        if direct.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            self._relayed[place] = False
        elif not self._relayed.get(place, False):
            self._relayed[place] = not await _connected(direct.channel)
        return self._peer(place, True) if self._relayed[place] else direct

    def _suspect(self, place: Place, peer: _Peer) -> None:
        """Leave a channel on which a call got no answer, if another way may lead to the place.

        From a direct connection they go to a relay until a new one is up; from a relay, to another.
        """
        key = (place, peer.relayed)
        if self.relay is None or self._peers.get(key) is not peer:
            return
        if peer.relayed and not self.relay.doubt(place[1]):
            return
        self._relayed[place] = True
        self._drop(self._peers.pop(key), RENEW_GRACE_S)

    def _leave_relay(self) -> None:
        """Open new connections for the next relayed calls, because a relay is about to stop."""
        for key in [key for key in self._peers if key[1]]:
            self._drop(self._peers.pop(key), RENEW_GRACE_S)

    def _peer(self, place: Place, relayed: bool) -> _Peer:
        """Return the channel to a place; a new one if another certificate counts at one end.

        Raise Unreachable if the peer of the place moves too often.
        """
        if self._closing:
            raise Unreachable(f"cannot send to {place[0]}: this transport is closed")
        for gone in self._dials.use(place, asyncio.get_running_loop().time()):
            self._relayed.pop(gone, None)
            for old in (self._peers.pop((gone, way), None) for way in (False, True)):
                if old is not None:
                    self._drop(old, None)
        key, ends = (place, relayed), None
        if self._own is not None and self._roster is not None:
            ends = self._own(), self._roster.callee(place[1])
        peer = self._peers.get(key)
        if peer is None or peer.ends != ends:
            if peer is not None:
                self._drop(peer, RENEW_GRACE_S)
            channel = self._open(place, relayed, REPLY_BYTES_MAX, ends)
            peer = self._peers[key] = _Peer(channel, ends, relayed)
        return peer

    def _open(self, place: Place, relayed: bool, reply_bytes_max: int, ends: Ends) -> Any:
        """Return a new channel, which reaches only the node of a place ("": any node)."""
        endpoint = parse(place[0])
        most = ("grpc.max_receive_message_length", reply_bytes_max + AROUND_BYTES)
        options = (*OPTIONS, most, *proxy_options(self._proxy, endpoint))
        target = target_of(endpoint)
        if relayed:
            assert self.relay is not None
            target = self.relay.path_to(place[1])
        if ends is None:
            return grpc.aio.insecure_channel(target, options=options)
        return channel_to(target, *ends, options)

    def _drop(self, peer: _Peer, grace_s: float | None) -> None:
        dropping = asyncio.ensure_future(peer.channel.close(grace_s))
        self._dropped.add(dropping)
        dropping.add_done_callback(self._dropped.discard)


def _place(endpoint: Endpoint, who: str) -> Place:
    return str(endpoint), who or (endpoint.host if endpoint.relayed else "")


async def _connected(channel: Any) -> bool:
    """Tell whether a connection comes up within DIRECT_FIRST_S."""
    try:
        async with asyncio.timeout(DIRECT_FIRST_S):
            state = channel.get_state(try_to_connect=True)
            while state is not grpc.ChannelConnectivity.READY:
                if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                    return False
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
    except TimeoutError:
        return False
    return True


def _late(to: str, timeout_s: float) -> str:
    return f"{to} did not answer within {timeout_s:.3g} s"
