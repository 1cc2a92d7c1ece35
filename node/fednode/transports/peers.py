"""A channel for each peer: directly, and through a relay as long as no direct way works.

gRPC keeps trying the direct connection of a relayed peer. A call takes the direct way as soon as
that connection is up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, Final, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from fednode.core import foreign
from fednode.errors import AddressError, FrameError, KeyRefused, Unreachable
from fednode.identity.certificates import Credential
from fednode.identity.roster import Roster
from fednode.transports import http_proxy
from fednode.transports.address import Endpoint, RelayEntry, parse, target_of
from fednode.transports.base import Address
from fednode.transports.credentials import Own, channel_to
from fednode.transports.dial_limiter import DialLimiter, Place
from fednode.transports.exchange import DELIVER, DELIVER_CHUNKS, opened, pieces, wrapped
from fednode.transports.framing import FRAME_BYTES_MAX, PIECE_BYTES, REPLY_BYTES_MAX
from fednode.transports.limits import REVOCATION
from fednode.transports.relay_client import OPTIONS, RENEW_GRACE_S, RelayClient, Say
from fednode.transports.server import AROUND_BYTES

CALLS_PER_PEER: Final = 32
"""Calls at a time from here to one peer. A new connection does not know the peer's own limit."""
DIRECT_FIRST_S: Final = 0.5
"""How long a call waits for a direct connection before it takes a relay."""
# What gRPC says of a connection that does not come up, and what it means.
_WRONG_NODE: Final = "Hostname Verification"
_HANDSHAKES: Final = {
    _WRONG_NODE: "is another node than the one that is called",
    "address lookup failed": "has a name that does not resolve",
    "handshake failed": "shows a certificate of another mesh, or of a sponsor or key that the mesh "
    "revoked, or the clocks differ",
    **dict.fromkeys(
        ("Socket closed", "Connection reset", "Broken pipe"),
        "closed the connection: it does not know this node's certificate, or stops",
    ),
}
REVOKED: Final = "the mesh revoked this node's key: ask for a new link"
Ends = tuple[Credential, tuple[str, bytes]] | None
"""What this node shows, and what it demands of a callee (`Roster.callee`); None without keys."""


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
        if len(frame) > FRAME_BYTES_MAX:
            raise FrameError(
                f"a frame of {len(frame):,} bytes cannot be sent; the limit is {FRAME_BYTES_MAX:,}"
            )
        shown, place = who if endpoint.relayed and who else to, (str(endpoint), who)
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
                raise Unreachable(_closed(shown))
            reply = await peer.deliver(frame, max(deadline - clock(), 0.0))
            peer.reached = True
            return opened(reply)
        except DecodeError as fault:
            raise FrameError(f"the answer of {shown} is no frame") from fault
        except grpc.aio.AioRpcError as fault:
            if fault.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                self._suspect(place, peer)
            relay = self.relay if peer.relayed else None
            why = "" if relay is None else relay.fault(who or endpoint.host)
            if why and fault.code() is grpc.StatusCode.UNAVAILABLE:
                raise Unreachable(f"cannot reach {shown} through a relay: {why}") from fault
            raise self.explain(shown, fault, timeout_s, peer.reached) from fault
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

    async def channel(self, to: Address, who: str = "", reply_bytes_max: int = 4 << 20) -> Any:
        """Return a grpc.aio channel to a node's services, which reaches only the node `who`.

        It takes the way that works. The caller closes it. Raise AddressError for an address that is
        malformed or not allowed, and Unreachable for a peer that changes its address too often.
        """
        endpoint = self._endpoint(to, "send to")
        place = (str(endpoint), who)
        self._use(place)
        may_relay = self._may_relay(endpoint, who)
        if not endpoint.relayed:
            channel = self._open(place, False, reply_bytes_max, self._ends(place))
            if not may_relay or await _connected(channel):
                return channel
            await channel.close()
        return self._open(place, True, reply_bytes_max, self._ends(place))

    def path(self, to: Address, who: str) -> tuple[str, str]:
        """Return how a peer is reached, "direct" or "relay HOST:PORT", and why not directly."""
        endpoint = parse(to)
        place = (str(endpoint), who)
        if place not in self._relayed:
            return "", ""
        via = "" if self.relay is None else self.relay.way_to(who)
        if endpoint.relayed:
            return f"relay {via}", "its address is `relay`"
        if self._relayed[place]:
            return f"relay {via}", "it does not answer directly"
        return "direct", ""

    def explain(
        self, to: str, fault: grpc.aio.AioRpcError, timeout_s: float = 0.0, reached: bool = False
    ) -> Unreachable:
        """Return why a call failed, in a sentence; KeyRefused if this node's key is refused.

        reached: the node has answered in this channel before.
        """
        code, details = fault.code(), foreign.line(fault.details() or "", 200)
        proofs = [value for key, value in fault.trailing_metadata() or () if key == REVOCATION]
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
        return Unreachable(_sentence(to, code, timeout_s))

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
        if not self._may_relay(endpoint, place[1]):
            self._relayed[place] = False
            return self._peer(place, False)
        if endpoint.relayed or not self.direct:
            self._relayed[place] = True
            return self._peer(place, True)
        direct = self._peer(place, False)
        state = direct.channel.get_state(try_to_connect=True)
        if state is not grpc.ChannelConnectivity.READY:
            lately = self._relayed.get(place, False)
            self._relayed[place] = lately or not await _connected(direct.channel)
        else:
            self._relayed[place] = False
        return self._peer(place, True) if self._relayed[place] else direct

    def _suspect(self, place: Place, peer: _Peer) -> None:
        """Leave a channel on which a call got no answer, if another way may lead to the place.

        From a direct connection calls go to a relay until a new direct connection is up; from a
        relay, to another one.
        """
        key, relay = (place, peer.relayed), self.relay
        if relay is None or self._peers.get(key) is not peer:
            return
        who = place[1] or parse(place[0]).host
        if peer.relayed and not relay.doubt(who):
            return
        self._relayed[place] = True
        self._drop(self._peers.pop(key), RENEW_GRACE_S)

    def _leave_relay(self) -> None:
        """Open new connections for the next relayed calls, because a relay is about to stop."""
        for key in [key for key in self._peers if key[1]]:
            self._drop(self._peers.pop(key), RENEW_GRACE_S)

    def _may_relay(self, endpoint: Endpoint, who: str) -> bool:
        """Tell whether a relay can lead to a node."""
        if endpoint.relayed and self.relay is None:
            text = f"cannot reach {who or 'it'}: it is reached through a relay, and none is known"
            raise Unreachable(text)
        return self.relay is not None and bool(who or endpoint.host)

    def _peer(self, place: Place, relayed: bool) -> _Peer:
        """Return the channel to a place; a new one if another certificate counts at one end."""
        if self._closing:
            raise Unreachable(f"cannot send to {place[0]}: this transport is closed")
        self._use(place)
        key, ends = (place, relayed), self._ends(place)
        peer = self._peers.get(key)
        if peer is not None and peer.ends == ends:
            return peer
        if peer is not None:
            self._drop(peer, RENEW_GRACE_S)
        channel = self._open(place, relayed, REPLY_BYTES_MAX, ends)
        self._peers[key] = _Peer(channel, ends, relayed)
        return self._peers[key]

    def _open(self, place: Place, relayed: bool, reply_bytes_max: int, ends: Ends) -> Any:
        """Return a new channel, which reaches only the node of a place ("": any node)."""
        endpoint = parse(place[0])
        most = ("grpc.max_receive_message_length", reply_bytes_max + AROUND_BYTES)
        options = (*OPTIONS, most, *http_proxy.options(self._proxy, endpoint))
        if relayed:
            assert self.relay is not None
            target = self.relay.path_to(place[1] or endpoint.host)
        else:
            target = target_of(endpoint)
        if ends is None:
            return grpc.aio.insecure_channel(target, options=options)
        return channel_to(target, *ends, options)

    def _ends(self, place: Place) -> Ends:
        """Return what both ends of a channel to a place are to show."""
        if self._own is None or self._roster is None:
            return None
        endpoint = parse(place[0])
        named = endpoint.host if endpoint.relayed else ""
        return self._own(), self._roster.callee(place[1] or named)

    def _use(self, place: Place) -> None:
        """Mark a place as dialled; raise Unreachable if its peer moves too often."""
        for gone in self._dials.use(place, asyncio.get_running_loop().time()):
            self._relayed.pop(gone, None)
            for relayed in (False, True):
                if (peer := self._peers.pop((gone, relayed), None)) is not None:
                    self._drop(peer, None)

    def _drop(self, peer: _Peer, grace_s: float | None) -> None:
        dropping = asyncio.ensure_future(peer.channel.close(grace_s))
        self._dropped.add(dropping)
        dropping.add_done_callback(self._dropped.discard)


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


def _sentence(to: str, code: grpc.StatusCode, timeout_s: float) -> str:
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


def _late(to: str, timeout_s: float) -> str:
    return f"{to} did not answer within {timeout_s:.3g} s"


def _closed(to: str) -> str:
    return f"the connection to {to} was closed before the answer"
