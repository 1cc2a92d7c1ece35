"""The relay: it connects nodes that take no connections, and understands none of what it carries.

A node waits on a connection that it opened. Another node dials it by its id; the relay tells the
node that waits, which opens a second connection for the call. Then the relay copies bytes both
ways. Between the two nodes these bytes are TLS between the nodes' own keys, so a relay can read and
change nothing; it can only refuse, delay and cut (docs/networks.md). Each stream has two TCP
connections of its own, so the system's sockets slow a fast sender, and no stream blocks another.

The gate (node/fednode/transports/tls.py) proves the key of each connection before it comes here. A
key that the relay does not know may dial nodes that admit newcomers, and do nothing else
(node/fednode/transports/strangers.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from fednode.errors import FrameError
from fednode.transports import relay_frames as frames
from fednode.transports.buckets import Buckets
from fednode.transports.carrier import Carrier, Counts
from fednode.transports.session import Ends
from fednode.transports.strangers import BEGINNING, BYTES_MAX, VISIT_S, Strangers
from fednode.wire.gen import relay_pb2 as pb

ASK_S: Final = 10.0
"""How long a connection may take for its first frame."""
TICKET_S: Final = 3.0
"""How long a ticket is good, and so how long a node may take to answer a call."""
PING_S: Final = 2.0
SILENT_S: Final = 6.0
"""A side that hears nothing for this long ends the connection."""
PAIR_MAX: Final = 8
KEY_MAX: Final = 256
STREAMS_MAX: Final = 4096
"""Streams at a time: between two keys, of one key, and in all."""
WAITING_MAX: Final = 4096
ASKING_MAX: Final = 16
"""Connections of one key that have not said what they want."""
DIALS_S: Final = 20.0
"""Dials of one key in a second, on average and at once."""
DIALLERS_MAX: Final = 4096
DRAIN_S: Final = 30.0
"""How long streams may go on after a relay was told to stop."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A node that waits to be called. admits: strangers may call it, too."""

    ends: Ends
    task: asyncio.Task[Any]
    heard_at: float
    admits: bool = False

    def call(self, ticket: bytes, caller: str, source: str) -> None:
        """Tell the node that somebody calls it."""
        self.say(call=pb.Call(ticket=ticket, caller=caller, source=source[: frames.ID_MAX]))

    def say(self, **what: Any) -> None:
        self.ends.writer.write(frames.pack(pb.FromRelay(**what)))


@dataclass(slots=True, eq=False)
class _Stream:
    """A call, and then the stream between two nodes. taken: the called node's connection.

    stranger: the relay does not know the caller's key.
    """

    caller: str
    called: str
    task: asyncio.Task[Any]
    taken: asyncio.Future[Ends]
    stranger: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)


class _Refused(Exception):
    """A request that the relay does not grant."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


class Relay:
    """The relay of one gate. Everything runs on the event loop that made it."""

    def __init__(
        self,
        refusal: Callable[[str], str],
        revoke: Callable[[bytes], None] = lambda _: None,
        mbit: float = 0.0,
    ) -> None:
        """Set up.

        refusal: returns why a key that came in may not stay, "" if it may; asked at each dial and
        every PING_S. revoke: takes a revocation that a node passes on; raises nothing for a wrong
        one. mbit: megabits a second that one key may send through the relay; 0: no limit.
        """
        self._refusal, self._revoke = refusal, revoke
        self.counts = Counts()
        self._carrier = Carrier(self.counts, mbit)
        self._waiting: dict[str, _Waiting] = {}
        self._calls: dict[bytes, _Stream] = {}
        self._streams: set[_Stream] = set()
        self._per_key: Counter[str] = Counter()
        self._per_pair: Counter[tuple[str, ...]] = Counter()
        self._asking: Counter[str] = Counter()
        self._dials = Buckets(DIALS_S, DIALS_S, DIALLERS_MAX)
        self._strangers = Strangers()
        self._draining = False

    @property
    def waiting(self) -> int:
        """Return how many nodes wait here."""
        return len(self._waiting)

    @property
    def streams(self) -> int:
        """Return how many streams there are now."""
        return len(self._streams)

    @property
    def admits(self) -> bool:
        """Tell whether a node waits here that admits strangers."""
        return any(node.admits for node in self._waiting.values())

    async def serve(self, id: str, source: str, ends: Ends) -> None:
        """Serve a connection of a proven key until it ends. source: where it comes from."""
        try:
            if self._refusal(id):
                await self._visit(id, source, ends)
                return
            with self._room_to_ask(id):
                async with asyncio.timeout(ASK_S):
                    asked = frames.from_node(await frames.read(ends.reader))
                what, to, ticket = asked.WhichOneof("what"), asked.dial.to, asked.take.ticket
                del asked  # a message takes much memory, and a stream may last for days
            if what == "wait":
                await self._wait(id, ends)
            elif what == "dial":
                node = self._admit(id, to)
                await self._dial(_Stream(id, to, _task(), _future()), node, source, ends)
            elif what == "take":
                await self._take(id, ticket, ends)
            else:
                raise _Refused("refused", f"a connection cannot begin with {what}")
        except _Refused as fault:
            self.counts.refused[fault.code] += 1
            await _reply(ends, fault.code, str(fault))
        except (FrameError, TimeoutError):
            self.counts.refused["garbage"] += 1

    async def watch(self) -> None:
        """Ping the nodes that wait, and end what is silent or no longer admitted; never return."""
        while True:
            await asyncio.sleep(PING_S)
            self.look(_now())

    def look(self, now: float) -> None:
        """Ping each node that waits; end connections that are silent or no longer admitted."""
        for id, node in tuple(self._waiting.items()):
            if now - node.heard_at > SILENT_S or self._refusal(id):
                node.task.cancel()
            else:
                node.say(ping=pb.Ping())
        for stream in tuple(self._streams):
            known = stream.stranger or not self._refusal(stream.caller)
            if not known or self._refusal(stream.called):
                stream.task.cancel()
        self._dials.sweep(now)
        self._strangers.sweep(now)
        self._carrier.sweep(now)

    async def drain(self, limit_s: float = DRAIN_S) -> None:
        """Take no new streams, tell every node that waits, and let streams end for some time."""
        self._draining = True
        for node in self._waiting.values():
            node.say(drain=pb.Drain())
        ends = [asyncio.ensure_future(stream.over.wait()) for stream in self._streams]
        if ends:
            await asyncio.wait(ends, timeout=limit_s)
        for end in ends:
            end.cancel()

    @contextlib.contextmanager
    def _room_to_ask(self, id: str) -> Iterator[None]:
        """Hold one of a key's places for connections that have not said what they want."""
        if self._asking[id] >= ASKING_MAX:
            raise _Refused("full", f"{ASKING_MAX} connections of this key say nothing")
        self._asking[id] += 1
        try:
            yield
        finally:
            self._asking[id] -= 1
            if not self._asking[id]:
                del self._asking[id]

    # A node that waits ----------------------------------------------------------------------------

    async def _wait(self, id: str, ends: Ends) -> None:
        if len(self._waiting) >= WAITING_MAX and id not in self._waiting:
            raise _Refused("full", f"{WAITING_MAX} nodes wait here already")
        if self._draining:
            raise _Refused("draining", "this relay is about to stop")
        older = self._waiting.pop(id, None)
        if older is not None:
            older.task.cancel()
        node = self._waiting[id] = _Waiting(ends, _task(), _now())
        try:
            await _reply(ends, "ok")
            while data := await frames.read(ends.reader):
                node.heard_at = _now()
                self._hear(id, node, frames.from_node(data))
        finally:
            if self._waiting.get(id) is node:
                del self._waiting[id]

    def _hear(self, id: str, node: _Waiting, said: pb.FromNode) -> None:
        """Take what a node that waits says."""
        what = said.WhichOneof("what")
        if what == "admits":
            node.admits = said.admits.now
        elif what == "revocation":
            self._revoke(said.revocation.proof)
        elif what == "decline":
            call = self._calls.get(said.decline.ticket)
            if call is not None and call.called == id and not call.taken.done():
                call.taken.set_exception(_Refused("refused", said.decline.why))

    # Streams --------------------------------------------------------------------------------------

    async def _visit(self, id: str, source: str, ends: Ends) -> None:
        """Serve a stranger, which may dial a node that admits newcomers, and do nothing else."""
        with self._strangers.visit(source, _now()) as why:
            if why:
                raise _Refused("full", why)
            async with asyncio.timeout(VISIT_S):
                asked = frames.from_node(await frames.read(ends.reader))
                if asked.WhichOneof("what") != "dial":
                    raise _Refused("refused", "this relay does not know the key")
                to, node = self._open_to_strangers(asked.dial.to)
                stream = _Stream(id, to, _task(), _future(), stranger=True)
                await self._dial(stream, node, source, ends)

    def _open_to_strangers(self, beginning: str) -> tuple[str, _Waiting]:
        """Return the node that admits newcomers and whose id begins so; raise _Refused."""
        found = [
            (id, node)
            for id, node in self._waiting.items()
            if node.admits and id.startswith(beginning) and len(beginning) >= BEGINNING
        ]
        if self._draining or len(found) != 1:
            raise _Refused("absent", f"no node {beginning[:BEGINNING]}... admits newcomers here")
        return found[0]

    async def _dial(self, stream: _Stream, node: _Waiting, source: str, ends: Ends) -> None:
        ticket, to = secrets.token_bytes(frames.TICKET_BYTES), stream.called
        with self._held(stream, ticket):
            node.call(ticket, stream.caller, source)
            try:
                async with asyncio.timeout(TICKET_S):
                    taker = await stream.taken
            except TimeoutError as fault:
                text = f"{to} did not take the call within {TICKET_S:g} s"
                raise _Refused("silent", text) from fault
            await _reply(taker, "ok")
            await _reply(ends, "ok")
            self.counts.streams += 1
            most = BYTES_MAX if stream.stranger else sys.maxsize
            await self._carrier.carry((stream.caller, ends), (to, taker), most)

    def _count_dial(self, id: str) -> None:
        """Count a dial of a key; raise _Refused if it dials too often."""
        if not self._dials.take(id, _now()):
            raise _Refused("full", f"a key may dial {DIALS_S:g} times a second")

    def _admit(self, id: str, to: str) -> _Waiting:
        """Return the node to call; raise _Refused if the caller may not call it now."""
        self._count_dial(id)
        if self._draining:
            raise _Refused("draining", "this relay is about to stop")
        if why := self._refusal(id):
            raise _Refused("refused", why)
        node = self._waiting.get(to)
        if node is None:
            raise _Refused("absent", f"{to} does not wait here")
        if self._per_pair[_pair(id, to)] >= PAIR_MAX:
            raise _Refused("full", f"the two keys have {PAIR_MAX} streams here already")
        if max(self._per_key[id], self._per_key[to]) >= KEY_MAX:
            raise _Refused("full", f"one of the keys has {KEY_MAX} streams here already")
        if len(self._streams) >= STREAMS_MAX:
            raise _Refused("full", f"this relay has {STREAMS_MAX:,} streams already")
        return node

    @contextlib.contextmanager
    def _held(self, stream: _Stream, ticket: bytes) -> Iterator[None]:
        """Hold the places of a stream, from the call on."""
        keys = stream.caller, stream.called
        self._calls[ticket] = stream
        self._streams.add(stream)
        self._per_key.update(keys)
        self._per_pair[_pair(*keys)] += 1
        try:
            yield
        finally:
            self._calls.pop(ticket, None)
            self._streams.discard(stream)
            self._per_key.subtract(keys)
            self._per_pair[_pair(*keys)] -= 1
            for key in keys:
                if not self._per_key[key]:
                    del self._per_key[key]
            if not self._per_pair[_pair(*keys)]:
                del self._per_pair[_pair(*keys)]
            stream.taken.cancel()
            stream.over.set()

    async def _take(self, id: str, ticket: bytes, ends: Ends) -> None:
        stream = self._calls.get(ticket)
        if stream is None or stream.called != id or stream.taken.done():
            raise _Refused("refused", "the ticket is spent, too old, or not for this key")
        del self._calls[ticket]
        stream.taken.set_result(ends)
        await stream.over.wait()


async def _reply(ends: Ends, code: str, why: str = "") -> None:
    said = pb.FromRelay(reply=pb.Reply(code=code, why=why[: frames.WHY_MAX]))
    ends.writer.write(frames.pack(said))
    await ends.writer.drain()


def _pair(*keys: str) -> tuple[str, ...]:
    return tuple(sorted(keys))


def _task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _future() -> asyncio.Future[Ends]:
    return asyncio.get_running_loop().create_future()


def _now() -> float:
    return asyncio.get_running_loop().time()
