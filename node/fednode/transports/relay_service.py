"""The relay: a gRPC service that connects nodes, and understands none of what it carries.

A node waits (`Wait`) to be called. Another one dials it by its name (`Dial`); the relay gives the
one that waits a ticket, with which it opens a stream of its own (`Take`). Then the relay passes the
messages of each stream on to the other (proto/fednode/v1/relay.proto). gRPC's flow control slows a
fast sender, and no stream blocks another.

Members may call. A guest may dial the node that has invited it, and nobody else (limits.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import grpc
import grpc.aio

from fednode.core.rate_limit import TokenBuckets
from fednode.identity.roster import Guest, Member, Roster
from fednode.transports.credentials import caller_of
from fednode.wire.gen import relay_pb2

SERVICE: Final = "fednode.v1.RelayService"
WAIT, DIAL, TAKE = (f"/{SERVICE}/{name}" for name in ("Wait", "Dial", "Take"))
ENDLESS: Final = frozenset((WAIT, DIAL, TAKE))
"""Methods whose calls last as long as their nodes want."""
TO: Final = "fednode-to-bin"
TICKET: Final = "fednode-ticket-bin"
TICKET_S: Final = 3.0
"""How long a ticket is good, and so how long a node may take to answer a call."""
PING_S: Final = 2.0
"""Between two looks whether the ends of a stream may still call, and two pings to who waits."""
PAIR_MAX: Final = 8
KEY_MAX: Final = 256
STREAMS_MAX: Final = 4096
"""Streams at a time: between two nodes, of one node, and in all."""
GUEST_MAX: Final = 4
"""Streams at a time of all guests of one node."""
GUEST_S: Final = 60.0
"""How long a guest's stream may last."""
WAITING_MAX: Final = 4096
DIALS_S: Final = 20.0
"""Dials of one node in a second, on average and at once."""
WAITS_S, WAITS_AT_ONCE = 0.5, 20.0
"""Calls of one node to wait in a second, on average and at once. Each may change what TLS trusts.
"""
REVOCATIONS_MAX: Final = 256
INVITATIONS_MAX: Final = 64
GUESTS_MAX: Final = 1024
"""Open invitations of one node, and of all."""
DRAIN_S: Final = 30.0
"""How long streams may go on after a relay was told to stop."""

STOPPING: Final = "this relay is about to stop"
PING: Final = relay_pb2.Ticket()

_CODES: Final = {
    "refused": grpc.StatusCode.PERMISSION_DENIED,
    "full": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "draining": grpc.StatusCode.UNAVAILABLE,
    "silent": grpc.StatusCode.UNAVAILABLE,
    "absent": grpc.StatusCode.NOT_FOUND,
    "ticket": grpc.StatusCode.NOT_FOUND,
}
"""Why the relay does not grant a request, in one word for the metrics, and the code of gRPC."""
_End = tuple[AsyncIterator[bytes], Any]
"""One end of a stream: what it says, and the call."""


@dataclass(eq=False, slots=True)
class _Stream:
    """A call. taken: the called node's end. over: the stream has ended."""

    caller: str
    called: str
    taken: asyncio.Future[_End] = field(default_factory=asyncio.Future)
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Counts:
    """Counts of a relay since its start. refused: by reason."""

    streams: int = 0
    bytes: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class RelayService:
    """Wait, Dial and Take."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.counts = Counts()
        self._waiting: dict[str, asyncio.Queue[relay_pb2.Ticket]] = {}
        self._streams: dict[bytes, _Stream] = {}  # by ticket
        self._per_key: Counter[str] = Counter()
        self._per_pair: Counter[frozenset[str]] = Counter()
        self._invitations: Counter[str] = Counter()
        self._dials = TokenBuckets(DIALS_S, DIALS_S)
        self._waits = TokenBuckets(WAITS_AT_ONCE, WAITS_S)
        self._draining = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def streams(self) -> int:
        return len(self._streams)

    def register(self, server: Any) -> None:
        """Add this service to a grpc.aio server. What it passes on stays serialized."""
        handlers = {
            "Wait": grpc.unary_stream_rpc_method_handler(
                self._wait,
                relay_pb2.WaitRequest.FromString,
                relay_pb2.Ticket.SerializeToString,
            ),
            "Dial": grpc.stream_stream_rpc_method_handler(self._dial),
            "Take": grpc.stream_stream_rpc_method_handler(self._take),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    async def drain(self, limit_s: float = DRAIN_S) -> None:
        """Take no new streams, end all waiting, and let streams end for some time."""
        self._draining = True
        for tickets in self._waiting.values():
            with contextlib.suppress(asyncio.QueueFull):
                tickets.put_nowait(PING)  # who waits learns it at once
        if ends := [asyncio.ensure_future(one.over.wait()) for one in self._streams.values()]:
            _, left = await asyncio.wait(ends, timeout=limit_s)
            for end in left:
                end.cancel()

    # A node that waits ----------------------------------------------------------------------------

    async def _wait(self, request: relay_pb2.WaitRequest, context: Any) -> AsyncIterator[Any]:
        name = await self._member(context)
        before = self._waiting.get(name)
        if fault := self._waiting_fault(name):
            await self._refuse(context, *fault)
        tickets = self._waiting[name] = asyncio.Queue(PAIR_MAX * PAIR_MAX)
        while before is not None and not before.empty():
            tickets.put_nowait(before.get_nowait())
        self._learn(name, request)
        try:
            yield PING
            while self._waiting.get(name) is tickets and self._may(context):
                ticket = PING
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PING_S):
                        ticket = await tickets.get()
                if self._draining:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
                yield ticket
        finally:
            if self._waiting.get(name) is tickets:
                del self._waiting[name]
                self._invite(name, ())

    def _waiting_fault(self, name: str) -> tuple[str, str] | None:
        """Return why a node may not wait here now, in a word and in a sentence."""
        now = asyncio.get_running_loop().time()
        if self._draining:
            return "draining", STOPPING
        if len(self._waiting) >= WAITING_MAX and name not in self._waiting:
            return "full", f"{WAITING_MAX:,} nodes wait here already"
        if not self._waits.of(name, now).take():
            return "full", f"a node may begin to wait {WAITS_S:g} times a second"
        return None

    def _learn(self, name: str, request: relay_pb2.WaitRequest) -> None:
        """Take the revocations that a node knows, and its open invitations."""
        self._roster.learn_revocations(request.revocations[:REVOCATIONS_MAX])
        room = GUESTS_MAX - self._invitations.total() + self._invitations[name]
        self._invite(name, request.invitations[: min(room, INVITATIONS_MAX)])

    def _invite(self, name: str, keys: Sequence[bytes]) -> None:
        """Let the guests of a node call here, and nobody that it let call before."""
        if keys or self._invitations[name]:
            self._roster.set_invitations(dict.fromkeys(keys, name), by=name)
        self._invitations[name] = len(keys)
        self._invitations += Counter()  # forget zeros

    # Streams --------------------------------------------------------------------------------------

    async def _dial(self, said: AsyncIterator[bytes], context: Any) -> None:
        """Connect a caller with the node that it names, until one of them ends the stream."""
        to = dict(context.invocation_metadata()).get(TO, b"").decode(errors="replace")
        caller = caller_of(context, self._roster)
        if isinstance(caller, Guest) and caller.by == to:
            name, most, seconds = f"guests of {to}", GUEST_MAX, GUEST_S
        else:
            name, most, seconds = await self._member(context), PAIR_MAX, None
        if fault := self._dialling_fault(name, to, most):
            await self._refuse(context, *fault)
        stream, ticket = _Stream(name, to), secrets.token_bytes(16)
        with self._places(stream, ticket):
            self._waiting[to].put_nowait(relay_pb2.Ticket(ticket=ticket, caller=name))
            try:
                async with asyncio.timeout(TICKET_S):
                    taker = await stream.taken
            except TimeoutError:
                text = f"{to} did not take the call within {TICKET_S:g} s"
                await self._refuse(context, "silent", text)
            for one in (taker[1], context):
                await one.send_initial_metadata(())
            self.counts.streams += 1
            await self._carry((said, context), taker, seconds)

    async def _take(self, said: AsyncIterator[bytes], context: Any) -> None:
        name = await self._member(context)
        ticket = dict(context.invocation_metadata()).get(TICKET, b"")
        stream = self._streams.get(ticket)
        if stream is None or stream.called != name or stream.taken.done():
            text = "the ticket is spent, too old, or not for this node"
            await self._refuse(context, "ticket", text)
        stream.taken.set_result((said, context))
        await stream.over.wait()

    async def _carry(self, caller: _End, taker: _End, seconds: float | None) -> None:
        """Pass messages on until one end closes or may call no more, or a guest's time is over."""

        def may() -> bool:
            return self._may(caller[1]) and self._may(taker[1])

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await run_ways(self._copy(caller, taker), self._copy(taker, caller), may)

    async def _copy(self, source: _End, sink: _End) -> None:
        async for data in source[0]:
            self.counts.bytes += len(data)
            await sink[1].write(data)

    def _dialling_fault(self, name: str, to: str, most: int) -> tuple[str, str] | None:
        """Return why a node may not be called now, in a word and in a sentence."""
        now = asyncio.get_running_loop().time()
        if not self._dials.of(name, now).take():
            return "full", f"a node may dial {DIALS_S:g} times a second"
        if self._draining:
            return "draining", STOPPING
        if to not in self._waiting:
            return "absent", f"{to} does not wait here"
        if self._per_pair[frozenset((name, to))] >= most:
            return "full", f"the two nodes have {most} streams here already"
        if max(self._per_key[name], self._per_key[to]) >= KEY_MAX:
            return "full", f"one of the nodes has {KEY_MAX} streams here already"
        if len(self._streams) >= STREAMS_MAX:
            return "full", f"this relay has {STREAMS_MAX:,} streams already"
        if self._waiting[to].full():
            return "full", f"{to} has many calls to take"
        return None

    @contextlib.contextmanager
    def _places(self, stream: _Stream, ticket: bytes) -> Iterator[None]:
        """Hold the places of a stream, from the call on."""
        keys, pair = (stream.caller, stream.called), frozenset((stream.caller, stream.called))
        self._streams[ticket] = stream
        self._per_key.update(keys)
        self._per_pair[pair] += 1
        try:
            yield
        finally:
            del self._streams[ticket]
            self._per_key.subtract(keys)
            self._per_key += Counter()  # forget zeros
            self._per_pair[pair] -= 1
            self._per_pair += Counter()
            stream.taken.cancel()
            stream.over.set()

    def _may(self, context: Any) -> bool:
        return caller_of(context, self._roster) is not None

    async def _member(self, context: Any) -> str:
        caller = caller_of(context, self._roster)
        if isinstance(caller, Member):
            return caller.name
        await self._refuse(
            context, "refused", "a guest may dial the node that has invited it alone"
        )

    async def _refuse(self, context: Any, reason: str, why: str) -> NoReturn:
        self.counts.refused[reason] += 1
        await context.abort(_CODES[reason], why)
        raise AssertionError("abort raises")


async def run_ways(
    there: Coroutine[Any, Any, None],
    back: Coroutine[Any, Any, None],
    may: Callable[[], bool] = lambda: True,
) -> None:
    """Run both ways of a stream until one of them ends, or until the stream may last no longer."""
    ways = [asyncio.ensure_future(there), asyncio.ensure_future(back)]
    try:
        done = set[Any]()
        while not done and may():
            done, _ = await asyncio.wait(ways, timeout=PING_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
