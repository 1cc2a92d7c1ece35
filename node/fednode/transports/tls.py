"""Mutual TLS around gRPC; the node itself decides which connections to accept.

gRPC's own TLS accepts or drops a connection by certificate authorities, and does not report the
connections that it drops. A node knows peers by the fingerprints of their keys and reports whom it
refuses, so TLS ends here. The gate listens where peers call. It hands the decrypted bytes to gRPC
through a socket in a private folder, and remembers the id behind each connection. The exits
(node/fednode/transports/exits.py) do the same for outgoing calls. On the wire this is ordinary gRPC
over TLS 1.3. Calls that a relay passes on come in by the same gate; a caller that wants to speak to
a relay is handed to the relay of this gate, if it has one.

Connections are limited in number, in the time until they prove an id, and (by flow control) in
memory. What a key says over all its connections is metered (node/fednode/transports/meter.py). A
connection that does not speak TLS is recognized by its first byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from OpenSSL import SSL

from fednode.errors import FednodeError
from fednode.transports.address import Endpoint
from fednode.transports.base import Address
from fednode.transports.carrier import PIECE, spare
from fednode.transports.exits import Exits, Tell
from fednode.transports.gates import open_gate
from fednode.transports.line import Line
from fednode.transports.lines import Lines
from fednode.transports.links import Links
from fednode.transports.meter import USUAL, Rates
from fednode.transports.opening import open_directly
from fednode.transports.paths import HANDSHAKE_S, Judge, Paths
from fednode.transports.relay import Relay
from fednode.transports.room import Room, source_of
from fednode.transports.session import (
    ADMITTING,
    CHUNK,
    H2,
    RELAYING,
    Ends,
    Inner,
    PeerRejected,
    Session,
    Writer,
    drop_unheard,
    showing,
)
from fednode.transports.sockets import Sockets
from fednode.transports.ways import DIRECTLY, Ways

Credentials = Callable[[], tuple[Ed25519PrivateKey, x509.Certificate]]
"""Returns this node's key and certificate; called for each connection, so both may change.

Connections that show the same certificate object share one context, which costs time and memory.
"""
CONNECTIONS_MAX: Final = 1024
UNPROVEN_MAX: Final = 128
PER_KEY_MAX: Final = 8
VISITORS_MAX: Final = 128
SWEEP_S: Final = 5.0
"""Seconds between two looks for what is to be closed or mended."""
LOST: Final = "another program removed sockets of this node, as cleaners of temporary files do"
SPARE: Final = "Let it spare fednode-*, or set TMPDIR to a folder that is not cleaned"
IDS_SHOWN: Final = 8
"""Ids that are named in the refusals of one source; further refusals name the source."""


class Tls:
    """The gate and the exits of one node. Everything runs on the event loop that made it."""

    def __init__(
        self,
        credentials: Credentials,
        judge: Judge,
        tell: Tell,
        visit_s: float = 0.0,
        rates: Rates = USUAL,
        ways: Ways = DIRECTLY,
        relay: Relay | None = None,
        relay_judge: Judge | None = None,
        guests: Tls | None = None,
    ) -> None:
        """Set TLS up.

        visit_s: if anyone is let in, how long a connection lasts; 0: no limit. rates: what a key
        may say. ways: how peers are reached. relay: serves callers that want to speak to a relay.
        relay_judge: judges these callers; None for `judge`. guests: serves callers that ask for a
        lease, who see what it shows; None to refuse them.
        """
        self._credentials = credentials
        self._judge = judge
        self._tell = tell
        self._sockets = Sockets()
        self._mending, self._unmended = asyncio.Lock(), False
        self._sweeping: asyncio.Task[None] | None = None
        self._say = ways.say
        self.serve_again: Callable[[], Awaitable[None]] = _nothing
        """Lets gRPC's own server listen at `inside` once more."""
        # Path of our socket -> id and source of its caller.
        self._callers: dict[str, tuple[str, str]] = {}
        self._visit_s = visit_s
        self._unproven, self._visitors = Room(), Room()
        self._named: dict[str, set[str]] = {}  # the ids that were named, by source
        self._relayed: dict[Address, Room] = {}  # by relay
        self._relay, self._relay_judge, self._guests = relay, relay_judge or judge, guests
        self.answers: Callable[[], bool] = lambda: True
        """Whether this gate, if it serves another's guests, answers them now."""
        self.visitors: int | None = None
        """How many visitors it serves at a time; None for VISITORS_MAX."""
        self.visited: Callable[[], object] = lambda: None
        """Called when a visitor has gone."""
        self.gate: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: Counter[str] = Counter()
        self._count = 0
        self._shown: tuple[x509.Certificate, SSL.Context] | None = None
        self._lines = Lines(rates, visits=visit_s > 0)
        self.links: Links | None = None
        if ways.reach != "direct":
            self.links = Links(
                ways.relays,
                self._context,
                lambda shown: judge(shown, "")[0],
                ways.connect,
                ways.say,
                ways.proofs,
                ways.declined,
                ways.known,
                ways.admits,
            )
        paths = Paths(
            self._context,
            judge,
            ways.id_of,
            self.links,
            ways.reach,
            ways.connect if ways.proxied else open_directly,
            ways.offer,
        )
        self.exits = Exits(self._sockets, paths, self._lines, tell, self._task, ways.learn)
        self._explain = ways.explain

    @property
    def inside(self) -> str:
        """Return the address on which gRPC's own server has to listen; raise AddressError."""
        return f"unix:{self._sockets.listening('inside')}"

    def caller(self, peer: str) -> str:
        """Return the id behind a call, by gRPC's name of its connection; "" if there is none."""
        return self._callers.get(peer.removeprefix("unix:"), ("", ""))[0]

    def source(self, peer: str) -> str:
        """Return where a call comes from, as `source_of` writes it; "" if it is not known."""
        return self._callers.get(peer.removeprefix("unix:"), ("", ""))[1]

    async def listen(self, endpoint: Endpoint) -> int:
        """Open the gate at an address; return the port. Raise AddressError if that fails."""
        self.gate = await open_gate(endpoint, self._enter, CHUNK)
        self._begin_sweeping()
        return int(self.gate.sockets[0].getsockname()[1])

    def wait_at_relays(self) -> None:
        """Let relays call this node from now on."""
        self._begin_sweeping()
        if self.links is not None:
            self.links.wait(self._answer)

    async def close(self) -> None:
        """Drop everything. Idempotent."""
        await self.stop_sweeping()
        if self.gate is not None:
            self.gate.close()
        self.exits.close()
        if self.links is not None:
            await self.links.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._sockets.leave()

    def _begin_sweeping(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.ensure_future(self._sweep())

    async def stop_sweeping(self) -> None:
        """Look for nothing any more: a server of gRPC that stops removes its socket. Idempotent."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)

    async def _sweep(self) -> None:
        """Look every SWEEP_S for calls that stay unfinished, and for sockets that are gone."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self._lines.sweep()
            with contextlib.suppress(FednodeError, OSError):  # tried again
                await self.mend()

    async def mend(self) -> None:
        """Make all sockets anew if somebody removed one; raise FednodeError if that fails."""
        async with self._mending:
            if not self._sockets.lost():
                return
            self._sockets.leave()
            try:
                await self.serve_again()
                await self.exits.reopen()
            except FednodeError as fault:
                if not self._unmended:  # else a warning each SWEEP_S
                    self._say("sockets.lost", f"{LOST}, and cannot be made anew: {fault}", True)
                self._unmended = True
                raise
            self._unmended = False
            self._say("sockets.lost", f"{LOST}; they were made anew. {SPARE}", True)

    def turn_away(self, id: str, seconds: float) -> None:
        """Close the connections with a key, and refuse new ones for some seconds."""
        self._lines.turn_away(id, seconds)

    # In -------------------------------------------------------------------------------------------

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = (writer.get_extra_info("peername") or ("?", 0))[:2]
        where, source = str(Endpoint(str(host), int(port))), source_of(str(host))
        with self._task(), _closing(writer):
            drop_unheard(writer)
            with self._reported(where, source):
                self._lines.knock(source)
                session, id = await self._let_in(Ends(reader, writer), source)
                if session.speaks == RELAYING and self._relay is not None:
                    spare(writer)
                    inner = Inner(session, Ends(reader, writer), PIECE)
                    await self._relay.serve(id, source, inner.ends)
                    return
                await self._serve(session, id, source, Ends(reader, writer))

    async def _answer(self, outside: Ends, relay: Address, named: str) -> None:
        """Serve a call that a relay passed on. named: the id that the relay gave the caller."""
        source, outside.via = f"relay {relay} {named}", relay
        with self._task(), self._reported(source, source):
            self._lines.knock(f"relay {relay}")
            room = self._relayed.setdefault(relay, Room())
            with room.place(named, UNPROVEN_MAX // 2):
                session, id = await self._let_in(outside, source)
            if id != named:
                text = f"the relay named {named} as the caller, and {id} proved its key"
                raise PeerRejected("relay", text, id)
            if self._host(session) is not self:  # keys of newcomers cost nothing, and places do
                source = f"relay {relay} {outside.source}"
            await self._serve(session, id, source, outside)

    async def _serve(self, session: Session, id: str, source: str, outside: Ends) -> None:
        host = self._host(session)
        with host._visit(source):
            await host._hand_on(session, id, source, outside)

    def _host(self, session: Session) -> Tls:
        """Return the gate behind which a caller is served: this one, or that of newcomers."""
        return self if session.speaks != ADMITTING or self._guests is None else self._guests

    async def _let_in(self, outside: Ends, source: str) -> tuple[Session, str]:
        """Prove a caller's key while it holds one of the places for callers without a proof."""
        with self._unproven.place(source, UNPROVEN_MAX) as lost:
            if lost:
                text = f"{lost}: its oldest of {UNPROVEN_MAX} handshakes was dropped"
                self._tell("connections", lost, text)
            return await self._prove(outside)

    @contextlib.contextmanager
    def _reported(self, where: str, source: str) -> Iterator[None]:
        """Tell of a caller that is refused; a caller that went away is no news."""
        try:
            yield
        except PeerRejected as fault:
            self._tell(fault.kind, self._name(fault.id, source), f"{where}: {fault}")
        except (OSError, SSL.Error, asyncio.IncompleteReadError):
            pass

    @contextlib.contextmanager
    def _visit(self, source: str) -> Iterator[None]:
        """Limit the connections of visitors (callers of any key) in number and time."""
        if not self._visit_s:
            yield
            return
        task = asyncio.current_task()
        assert task is not None
        with self._visitors.place(source, self.visitors or VISITORS_MAX):
            end = asyncio.get_running_loop().call_later(self._visit_s, task.cancel)
            try:
                yield
            finally:
                end.cancel()
                self.visited()

    def _name(self, id: str, source: str) -> str:
        """Return the id or source under which a refusal is counted.

        New keys cost nothing and new sources do, so only a few ids per source are named.
        """
        ids = self._named.setdefault(source, set())
        if len(self._named) > CONNECTIONS_MAX:
            del self._named[next(iter(self._named))]
        if not id or (id not in ids and len(ids) >= IDS_SHOWN):
            return source
        ids.add(id)
        return id

    async def _prove(self, outside: Ends) -> tuple[Session, str]:
        """Shake hands with a caller and judge its certificate; return the session and the id."""
        if sum(self._held.values()) >= CONNECTIONS_MAX:
            raise PeerRejected("connections", "too many connections at a time")
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                session = Session(self._context(), server=True)
                shown = await session.shake_hands(outside)
        except TimeoutError as fault:
            raise PeerRejected("handshake", f"no TLS handshake within {HANDSHAKE_S:g} s") from fault
        except SSL.Error as fault:
            raise PeerRejected(
                "handshake", "the TLS handshake failed: no certificate, or a bad one"
            ) from fault
        relayed, host = session.speaks == RELAYING, self._host(session)
        id, reason = (self._relay_judge if relayed else host._judge)(shown, "")
        knocks = relayed and id and self._relay is not None and self._relay.admits
        if reason and not knocks:
            if session.speaks == H2 and (last := self._explain(id, reason)):
                session.end(outside, last)
            raise PeerRejected("certificate", f"{id or 'a stranger'} is refused: {reason}", id)
        if relayed:
            if self._relay is None:
                raise PeerRejected("relay", f"{id} asks for a relay, and there is none here", id)
            return session, id
        if host._held[id] >= PER_KEY_MAX:
            raise PeerRejected("connections", f"{id} holds {PER_KEY_MAX} connections already", id)
        host._lines.enter(id)
        return session, id

    async def _hand_on(self, session: Session, id: str, source: str, outside: Ends) -> None:
        """Carry a caller's bytes to gRPC and back, from its first word on.

        A caller of gRPC speaks at once. One that is silent costs a descriptor for a while, and
        nothing of gRPC's.
        """
        self._held[id] += 1
        try:
            with self._lines.serve(id, source, outside.via) as line:
                try:
                    async with asyncio.timeout(HANDSHAKE_S):
                        first = await session.first_words(outside, line)
                except TimeoutError as fault:
                    raise PeerRejected(
                        "handshake", f"it said nothing within {HANDSHAKE_S:g} s", id
                    ) from fault
                if first:
                    await self._carry_in(session, first, (id, source), outside, line)
        finally:
            self._held[id] -= 1
            self._held += Counter()  # forget zeros

    async def _carry_in(
        self, session: Session, first: bytes, caller: tuple[str, str], outside: Ends, line: Line
    ) -> None:
        self._count += 1
        name = f"in-{self._count}"
        try:
            try:
                inside, path = await self._connected(name, caller)
            except OSError:
                await self.mend()
                inside, path = await self._connected(name, caller)
        except FednodeError as fault:
            raise ConnectionError(str(fault)) from fault
        try:
            ends = Ends(*await asyncio.open_unix_connection(sock=inside, limit=CHUNK))
            with _closing(ends.writer):
                ends.writer.write(first)
                await session.carry(outside, ends, line)
        finally:
            inside.close()
            self._callers.pop(path, None)
            with contextlib.suppress(OSError):
                os.unlink(path)

    async def _connected(self, name: str, caller: tuple[str, str]) -> tuple[socket.socket, str]:
        """Return a connection with gRPC's own server, and its path, which tells who calls."""
        inside, path = socket.socket(socket.AF_UNIX), self._sockets.path(name)
        inside.setblocking(False)
        self._callers[path] = caller
        try:
            inside.bind(path)
            to = self._sockets.path("inside")
            await asyncio.get_running_loop().sock_connect(inside, to)
        except BaseException:
            inside.close()
            del self._callers[path]
            raise
        return inside, path

    def _context(self) -> SSL.Context:
        key, certificate = self._credentials()
        if self._shown is None or self._shown[0] is not certificate:
            self._shown = certificate, showing(key, certificate, self._theirs)
        return self._shown[1]

    def _theirs(self) -> SSL.Context | None:
        """Return what connections of callers that ask for a lease are made of; None to refuse."""
        guests = self._guests
        return None if guests is None or not guests.answers() else guests._context()

    @contextlib.contextmanager
    def _task(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                yield
        finally:
            self._tasks.discard(task)


async def _nothing() -> None:
    """Do nothing: no server of gRPC belongs to this gate."""


@contextlib.contextmanager
def _closing(writer: Writer) -> Iterator[None]:
    try:
        yield
    finally:
        writer.close()
