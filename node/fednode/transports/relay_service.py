"""The relay: a gRPC service that connects nodes, and understands none of what it carries.

A node waits (`Wait`) to be called. Another one dials it by its name (`Dial`); the relay gives the
one that waits a ticket, with which it opens a stream of its own (`Take`). Then the relay passes the
messages of each stream on to the other. They are bytes of a TLS session between the two nodes, so a
relay can read and change nothing; it can only refuse, delay and cut. gRPC's flow control slows a
fast sender, and no stream blocks another.

    Wait(empty)                              -> stream of tickets; an empty one is a ping
    Dial(stream of bytes), metadata: to      -> stream of bytes
    Take(stream of bytes), metadata: ticket  -> stream of bytes

Dial and Take answer with headers once both ends are there, or with a status. Only members may call.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import grpc.aio

from fednode.identity.roster import Member, Roster
from fednode.transports.buckets import Buckets
from fednode.transports.credentials import caller_of

SERVICE: Final = "fednode.v1.Relay"
WAIT, DIAL, TAKE = (f"/{SERVICE}/{name}" for name in ("Wait", "Dial", "Take"))
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
WAITING_MAX: Final = 4096
DIALS_S: Final = 20.0
"""Dials of one node in a second, on average and at once."""


_End = tuple[AsyncIterator[bytes], Any]
"""One end of a stream: what it says, and the call."""


class Refused(Exception):
    """A request that the relay does not grant."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        super().__init__(why)
        self.code = code


@dataclass(eq=False, slots=True)
class _Stream:
    """A call. taken: the called node's end. over: the stream has ended."""

    caller: str
    called: str
    taken: asyncio.Future[_End] = field(default_factory=asyncio.Future)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class RelayService:
    """Wait, Dial and Take."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._waiting: dict[str, asyncio.Queue[bytes]] = {}
        self._calls: dict[bytes, _Stream] = {}
        self._streams: set[_Stream] = set()
        self._per_key: Counter[str] = Counter()
        self._per_pair: Counter[frozenset[str]] = Counter()
        self._dials = Buckets(DIALS_S, DIALS_S, WAITING_MAX)
        self._draining = False

    def register(self, server: Any) -> None:
        """Add this service to a grpc.aio server."""
        handlers = {
            "Wait": grpc.unary_stream_rpc_method_handler(self._wait),
            "Dial": grpc.stream_stream_rpc_method_handler(self._dial),
            "Take": grpc.stream_stream_rpc_method_handler(self._take),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    async def drain(self, limit_s: float = 30.0) -> None:
        """Take no new streams, end all waiting, and let streams end for some time."""
        self._draining = True
        self._waiting.clear()
        if ends := [asyncio.ensure_future(one.over.wait()) for one in self._streams]:
            _, left = await asyncio.wait(ends, timeout=limit_s)
            for end in left:
                end.cancel()

    async def _wait(self, _: bytes, context: Any) -> AsyncIterator[bytes]:
        name = await self._member(context)
        if self._draining or (len(self._waiting) >= WAITING_MAX and name not in self._waiting):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this relay takes no more nodes")
        tickets = self._waiting[name] = asyncio.Queue(PAIR_MAX * PAIR_MAX)
        try:
            yield b""
            while self._waiting.get(name) is tickets and self._may(context):
                try:
                    async with asyncio.timeout(PING_S):
                        ticket = await tickets.get()
                except TimeoutError:
                    ticket = b""
                yield ticket
        finally:
            if self._waiting.get(name) is tickets:
                del self._waiting[name]

    async def _dial(self, said: AsyncIterator[bytes], context: Any) -> None:
        name = await self._member(context)
        to = dict(context.invocation_metadata()).get(TO, b"").decode()
        try:
            tickets = self._admit(name, to)
            stream, ticket = _Stream(name, to), secrets.token_bytes(16)
            with self._held(stream, ticket):
                tickets.put_nowait(ticket)
                try:
                    async with asyncio.timeout(TICKET_S):
                        taker = await stream.taken
                except TimeoutError:
                    text = f"{to} did not take the call within {TICKET_S:g} s"
                    raise Refused(grpc.StatusCode.UNAVAILABLE, text) from None
                for one in (taker[1], context):
                    await one.send_initial_metadata(())
                await self._carry((said, context), taker)
        except asyncio.QueueFull:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{to} has many calls to take")
        except Refused as fault:
            await context.abort(fault.code, str(fault))

    async def _take(self, said: AsyncIterator[bytes], context: Any) -> None:
        name = await self._member(context)
        ticket = dict(context.invocation_metadata()).get(TICKET, b"")
        stream = self._calls.get(ticket)
        if stream is None or stream.called != name or stream.taken.done():
            await context.abort(grpc.StatusCode.NOT_FOUND, "the ticket is spent or too old")
        else:
            stream.taken.set_result((said, context))
            await stream.over.wait()

    async def _carry(self, caller: _End, taker: _End) -> None:
        """Pass messages on both ways until one end closes, or may call no more."""
        ways = [asyncio.ensure_future(_copy(*ends)) for ends in ((caller, taker), (taker, caller))]
        try:
            done = set[Any]()
            while not done and self._may(caller[1]) and self._may(taker[1]):
                done, _ = await asyncio.wait(
                    ways, timeout=PING_S, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    def _admit(self, name: str, to: str) -> asyncio.Queue[bytes]:
        """Return the tickets of the node to call; raise Refused if it may not be called now."""
        full = grpc.StatusCode.RESOURCE_EXHAUSTED
        now = asyncio.get_running_loop().time()
        self._dials.sweep(now)
        if not self._dials.take(name, now):
            raise Refused(full, f"a node may dial {DIALS_S:g} times a second")
        if to not in self._waiting:
            raise Refused(grpc.StatusCode.NOT_FOUND, f"{to} does not wait here")
        if self._per_pair[frozenset((name, to))] >= PAIR_MAX:
            raise Refused(full, f"the two nodes have {PAIR_MAX} streams here already")
        if max(self._per_key[name], self._per_key[to]) >= KEY_MAX:
            raise Refused(full, f"one of the nodes has {KEY_MAX} streams here already")
        if len(self._streams) >= STREAMS_MAX:
            raise Refused(full, f"this relay has {STREAMS_MAX:,} streams already")
        return self._waiting[to]

    @contextlib.contextmanager
    def _held(self, stream: _Stream, ticket: bytes) -> Iterator[None]:
        """Hold the places of a stream, from the call on."""
        keys, pair = (stream.caller, stream.called), frozenset((stream.caller, stream.called))
        self._calls[ticket] = stream
        self._streams.add(stream)
        self._per_key.update(keys)
        self._per_pair[pair] += 1
        try:
            yield
        finally:
            del self._calls[ticket]
            self._streams.discard(stream)
            self._per_key.subtract(keys)
            self._per_key += Counter()  # forget zeros
            self._per_pair[pair] -= 1
            self._per_pair += Counter()
            stream.taken.cancel()
            stream.over.set()

    def _may(self, context: Any) -> bool:
        return isinstance(caller_of(context, self._roster), Member)

    async def _member(self, context: Any) -> str:
        found = caller_of(context, self._roster)
        if not isinstance(found, Member):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "members alone use this relay")
            raise AssertionError("abort raises")
        return found.name


async def _copy(source: _End, sink: _End) -> None:
    async for data in source[0]:
        await sink[1].write(data)
