"""Mutual TLS around gRPC; the node itself decides which connections to accept.

gRPC's own TLS accepts or drops a connection by certificate authorities, and does not report the
connections that it drops. A node knows peers by the fingerprints of their keys and reports whom it
refuses, so TLS ends here. The gate listens where peers call. It hands the decrypted bytes to gRPC
through a socket in a private folder, and remembers the id behind each connection. The exit does the
same for outgoing calls. On the wire this is ordinary gRPC over TLS 1.3.

Connections are limited in number, in the time until they prove an id, and (by flow control) in
memory. A connection that does not speak TLS is recognized by its first byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from OpenSSL import SSL

from fednode.errors import AddressError, Unreachable
from fednode.transports.address import Endpoint
from fednode.transports.base import Address
from fednode.transports.room import Room, source_of
from fednode.transports.session import CHUNK, Ends, PeerRejected, Session

Credentials = Callable[[], tuple[Ed25519PrivateKey, x509.Certificate]]
"""Returns this node's key and certificate; called for each connection, so both may change.

Connections that show the same certificate object share one context, which costs time and memory.
"""
Judge = Callable[[bytes, str], tuple[str, str]]
"""Takes a certificate in DER and its required name or ""; returns its id, and a refusal or ""."""
Tell = Callable[[str, str, str], None]
"""Notes a refused connection: kind, source or id, a sentence."""

HANDSHAKE_S: Final = 10.0
"""Enough for a node that shares its processor with many others; it ends those who say nothing."""
CONNECTIONS_MAX: Final = 1024
UNPROVEN_MAX: Final = 128
PER_KEY_MAX: Final = 8
VISITORS_MAX: Final = 128
IDS_SHOWN: Final = 8
"""Ids that are named in the refusals of one source; further refusals name the source."""
UNHEARD_MS: Final = 10_000
"""A connection whose bytes are not acknowledged for this long is dropped, and opened anew."""


@dataclass(slots=True)
class Exit:
    """The way out to one place: the path of a socket, and the server that listens there."""

    path: str
    server: asyncio.Server


class Tls:
    """The gate and the exits of one node. Everything runs on the event loop that made it."""

    def __init__(
        self, credentials: Credentials, judge: Judge, tell: Tell, visit_s: float = 0.0
    ) -> None:
        """Set TLS up. visit_s: if anyone is let in, how long a connection lasts; 0: no limit."""
        self._credentials = credentials
        self._judge = judge
        self._tell = tell
        self._folder = Path(tempfile.mkdtemp(prefix="fednode-"))
        # Path of our socket -> id and source of its caller.
        self._callers: dict[str, tuple[str, str]] = {}
        self._visit_s = visit_s
        self._unproven, self._visitors = Room(), Room()
        self._named: dict[str, set[str]] = {}  # the ids that were named, by source
        self._exits: dict[tuple[Address, str], Exit] = {}
        self._faults: dict[tuple[Address, str], str] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: Counter[str] = Counter()
        self._count = 0
        self._shown: tuple[x509.Certificate, SSL.Context] | None = None

    @property
    def inside(self) -> str:
        """Return the address on which gRPC's own server has to listen."""
        return f"unix:{self._folder / 'inside'}"

    def caller(self, peer: str) -> str:
        """Return the id behind a call, by gRPC's name of its connection; "" if there is none."""
        return self._callers.get(peer.removeprefix("unix:"), ("", ""))[0]

    def source(self, peer: str) -> str:
        """Return where a call comes from, as `source_of` writes it; "" if it is not known."""
        return self._callers.get(peer.removeprefix("unix:"), ("", ""))[1]

    def fault(self, address: Address, who: str) -> str:
        """Return why the last connection to a place failed; "" if it did not."""
        return self._faults.get((address, who), "")

    async def listen(self, endpoint: Endpoint) -> int:
        """Open the gate at an address; return the port. Raise AddressError if that fails."""
        try:
            server = await asyncio.start_server(
                self._enter, endpoint.numeric, endpoint.port, limit=CHUNK, backlog=256
            )
        except OSError as fault:
            reason = fault.strerror or str(fault)
            raise AddressError(f"cannot listen on {endpoint}: {reason}; choose another") from fault
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def exit(self, endpoint: Endpoint, who: str) -> str:
        """Return the address that leads gRPC to an endpoint, if its key belongs to `who`.

        It stays open until `shut`. Raise Unreachable if no socket can be opened.
        """
        key = (str(endpoint), who)
        if key not in self._exits:
            self._count += 1
            path = str(self._folder / f"out-{self._count}")

            async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._leave(endpoint, who, Ends(reader, writer))

            try:
                server = await asyncio.start_unix_server(leave, path, limit=CHUNK)
            except OSError as fault:
                raise Unreachable(f"cannot send to {endpoint}: {fault.strerror}") from fault
            if self._exits.setdefault(key, Exit(path, server)).server is not server:
                server.close()  # another call was faster
        return f"unix:{self._exits[key].path}"

    def shut(self, endpoint: Endpoint, who: str) -> None:
        """Close an exit that is no longer used."""
        key = (str(endpoint), who)
        self._faults.pop(key, None)
        exit = self._exits.pop(key, None)
        if exit is not None:
            exit.server.close()
            with contextlib.suppress(OSError):
                os.unlink(exit.path)

    async def close(self) -> None:
        """Drop everything. Idempotent."""
        for server in (*self._servers, *(one.server for one in self._exits.values())):
            server.close()
        self._servers.clear()
        self._exits.clear()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    # In -------------------------------------------------------------------------------------------

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._task(), _closing(writer):
            host, port = (writer.get_extra_info("peername") or ("?", 0))[:2]
            where, source = str(Endpoint(str(host), int(port))), source_of(str(host))
            drop_unheard(writer)
            try:
                with self._unproven.place(source, UNPROVEN_MAX) as lost:
                    if lost:
                        text = f"{lost}: its oldest of {UNPROVEN_MAX} handshakes was dropped"
                        self._tell("connections", lost, text)
                    session, id = await self._prove(Ends(reader, writer))
                with self._visit(source):
                    await self._hand_on(session, id, source, Ends(reader, writer))
            except PeerRejected as fault:
                self._tell(fault.kind, self._name(fault.id, source), f"{where}: {fault}")
            except (OSError, SSL.Error, asyncio.IncompleteReadError):
                pass  # it went away

    @contextlib.contextmanager
    def _visit(self, source: str) -> Iterator[None]:
        """Limit the connections of visitors (callers of any key) in number and time."""
        if not self._visit_s:
            yield
            return
        task = asyncio.current_task()
        assert task is not None
        with self._visitors.place(source, VISITORS_MAX):
            end = asyncio.get_running_loop().call_later(self._visit_s, task.cancel)
            try:
                yield
            finally:
                end.cancel()

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
        id, reason = self._judge(shown, "")
        if reason:
            raise PeerRejected("certificate", f"{id or 'a stranger'} is refused: {reason}", id)
        if self._held[id] >= PER_KEY_MAX:
            raise PeerRejected("connections", f"{id} holds {PER_KEY_MAX} connections already", id)
        return session, id

    async def _hand_on(self, session: Session, id: str, source: str, outside: Ends) -> None:
        """Carry a caller's bytes to gRPC and back, from its first word on.

        A caller of gRPC speaks at once. One that is silent costs a descriptor for a while, and
        nothing of gRPC's.
        """
        self._held[id] += 1
        try:
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    first = await session.first_words(outside)
            except TimeoutError as fault:
                raise PeerRejected(
                    "handshake", f"it said nothing within {HANDSHAKE_S:g} s", id
                ) from fault
            if first:
                await self._carry_in(session, first, (id, source), outside)
        finally:
            self._held[id] -= 1
            self._held += Counter()  # forget zeros

    async def _carry_in(
        self, session: Session, first: bytes, caller: tuple[str, str], outside: Ends
    ) -> None:
        self._count += 1
        path = str(self._folder / f"in-{self._count}")
        inside = socket.socket(socket.AF_UNIX)
        inside.setblocking(False)
        self._callers[path] = caller
        try:
            inside.bind(path)
            await asyncio.get_running_loop().sock_connect(inside, str(self._folder / "inside"))
            ends = Ends(*await asyncio.open_unix_connection(sock=inside, limit=CHUNK))
            with _closing(ends.writer):
                ends.writer.write(first)
                await session.carry(outside, ends)
        finally:
            inside.close()
            self._callers.pop(path, None)
            with contextlib.suppress(OSError):
                os.unlink(path)

    # Out ------------------------------------------------------------------------------------------

    async def _leave(self, endpoint: Endpoint, who: str, inside: Ends) -> None:
        with self._task(), _closing(inside.writer):
            key = (str(endpoint), who)
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    streams = await asyncio.open_connection(
                        endpoint.numeric, endpoint.port, limit=CHUNK
                    )
                outside = Ends(*streams)
                drop_unheard(outside.writer)
            except socket.gaierror:
                self._blame(key, f"the name {endpoint.host} does not resolve")
                return
            except (OSError, TimeoutError):
                self._blame(key, f"nobody answers at {endpoint}")
                return
            with _closing(outside.writer):
                await self._carry_out(key, inside, outside)

    async def _carry_out(self, key: tuple[Address, str], inside: Ends, outside: Ends) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                session = Session(self._context(), server=False)
                shown = await session.shake_hands(outside)
            id, reason = self._judge(shown, key[1])
            if reason:
                raise PeerRejected(
                    "certificate", f"{id or 'a stranger'} answers at {key[0]}: {reason}"
                )
            if not await session.carry(outside, inside, lambda: self._faults.pop(key, None)):
                self._blame(
                    key,
                    f"{key[0]} hung up right after the TLS handshake: it refuses this node's key, "
                    "and its own log says why",
                )
        except PeerRejected as fault:
            self._blame(key, str(fault))
            self._tell(fault.kind, key[1] or key[0], str(fault))
        except TimeoutError:
            self._blame(key, f"{key[0]} does not speak TLS within {HANDSHAKE_S:g} s")
        except SSL.Error:
            self._blame(key, f"{key[0]} refused the connection, or does not speak TLS")
        except OSError:
            pass  # it went away; gRPC calls again

    def _blame(self, key: tuple[Address, str], text: str) -> None:
        """Store why the last connection of an exit failed, while the exit is open."""
        if key in self._exits:
            self._faults[key] = text

    def _context(self) -> SSL.Context:
        key, certificate = self._credentials()
        if self._shown is None or self._shown[0] is not certificate:
            self._shown = certificate, _showing(key, certificate)
        return self._shown[1]

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


def _showing(key: Ed25519PrivateKey, certificate: x509.Certificate) -> SSL.Context:
    """Return what connections are made of that show a certificate."""
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_min_proto_version(SSL.TLS1_3_VERSION)
    # Nobody comes in again by a ticket, without showing a certificate.
    context.set_options(SSL.OP_NO_TICKET)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)  # a connection without traffic holds none
    context.use_privatekey(key)
    context.use_certificate(certificate)
    context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _anyone)
    context.set_alpn_protos([b"h2"])
    context.set_alpn_select_callback(
        lambda _, offered: b"h2" if b"h2" in offered else SSL.NO_OVERLAPPING_PROTOCOLS
    )
    return context


def _anyone(*_: object) -> bool:
    """Return True: TLS proves who holds the key, and the judge decides afterwards."""
    return True


def drop_unheard(writer: asyncio.StreamWriter) -> None:
    """Let the operating system end a connection whose other end is cut off.

    TCP by itself tries for minutes, with growing pauses, so a node whose network is back would be
    found only then. Systems without this option (it is Linux's) wait for gRPC's own pings.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        own = writer.get_extra_info("socket")
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_MS)


@contextlib.contextmanager
def _closing(writer: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
    finally:
        writer.close()
