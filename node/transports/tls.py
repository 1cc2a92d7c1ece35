"""Mutual TLS around gRPC, with the say over who comes in left to the node.

gRPC's own TLS takes or drops a connection by certificate authorities and tells nobody of those it
drops. A node knows peers by the fingerprints of their keys and names whom it refuses, so TLS ends
here: the gate listens where peers call, hands gRPC what was decrypted through a socket in a private
folder, and remembers whose connection each is; the exit does the same for calls that go out. On the
wire this is ordinary gRPC over TLS 1.3.

Connections are bounded in number, in time until they have said who they are, and by flow control in
memory. What is no TLS at all is told from its first byte.
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
from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL import SSL

from node.errors import AddressError
from node.transports.address import Endpoint
from node.transports.base import Address

Credentials = Callable[[], tuple[Ed25519PrivateKey, x509.Certificate]]
"""What this node shows; asked for each connection, so that it may be renewed."""
Judge = Callable[[bytes, str], tuple[str, str]]
"""Take a certificate in DER and whom it is to be ("": anyone); return its id and why not, or ""."""
Tell = Callable[[str, str, str], None]
"""Note a connection that was refused: kind, from where or by whom, a sentence."""

HANDSHAKE_S: Final = 5.0
CONNECTIONS_MAX: Final = 1024
UNPROVEN_MAX: Final = 128
PER_KEY_MAX: Final = 16
CHUNK: Final = 64 << 10
UNHEARD_MS: Final = 10_000
"""A connection whose bytes nobody acknowledges for so long is dropped, and made anew."""
_TLS_HANDSHAKE: Final = 0x16


class Wrong(Exception):
    """The other end of a connection is not taken; kind, for counting, and a sentence."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(slots=True)
class Ends:
    """A connection's two directions, one side of it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Tls:
    """The gate and the exits of one node. Everything runs on the event loop that made it."""

    def __init__(self, credentials: Credentials, judge: Judge, tell: Tell) -> None:
        self._credentials = credentials
        self._judge = judge
        self._tell = tell
        self._folder = Path(tempfile.mkdtemp(prefix="fednode-"))
        self._callers: dict[str, str] = {}  # our socket's path -> the id behind it
        self._exits: dict[tuple[Address, str], str] = {}
        self._faults: dict[tuple[Address, str], str] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: Counter[str] = Counter()
        self._unproven = 0
        self._count = 0

    @property
    def inside(self) -> str:
        """Where gRPC's own server is to listen."""
        return f"unix:{self._folder / 'inside'}"

    def caller(self, peer: str) -> str:
        """Return the id behind a call, by gRPC's name of its connection; "" for nobody's."""
        return self._callers.get(peer.removeprefix("unix:"), "")

    def fault(self, address: Address, who: str) -> str:
        """Say why the last connection to somebody failed; "" where it did not."""
        return self._faults.get((address, who), "")

    async def listen(self, endpoint: Endpoint) -> int:
        """Open the gate at an address; return the port. Raise AddressError where it cannot be."""
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
        """Return the address that leads gRPC to an endpoint where only `who` is spoken to."""
        key = (str(endpoint), who)
        if key not in self._exits:
            self._count += 1
            path = str(self._folder / f"out-{self._count}")
            self._exits[key] = f"unix:{path}"

            async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._leave(endpoint, who, Ends(reader, writer))

            server = await asyncio.start_unix_server(leave, path, limit=CHUNK)
            self._servers.append(server)
        return self._exits[key]

    async def close(self) -> None:
        """Drop everything. Idempotent."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    # In -------------------------------------------------------------------------------------------

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._task(), _closing(writer):
            place = writer.get_extra_info("peername") or ("?", 0)
            where = str(Endpoint(str(place[0]), int(place[1])))
            id = ""
            drop_unheard(writer)
            try:
                session, id = await self._prove(Ends(reader, writer))
                await self._hand_on(session, id, Ends(reader, writer))
            except Wrong as fault:
                self._tell(fault.kind, id or where, f"{where}: {fault}")
            except (OSError, SSL.Error, asyncio.IncompleteReadError):
                pass  # it went away

    async def _prove(self, outside: Ends) -> tuple[_Session, str]:
        """Shake hands with a caller and judge what it shows."""
        if self._unproven >= UNPROVEN_MAX or sum(self._held.values()) >= CONNECTIONS_MAX:
            raise Wrong("connections", "too many connections at a time")
        self._unproven += 1
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                session = _Session(self._context(), server=True)
                shown = await session.shake_hands(outside)
        except TimeoutError as fault:
            raise Wrong("handshake", f"no TLS handshake within {HANDSHAKE_S:g} s") from fault
        except SSL.Error as fault:
            raise Wrong(
                "handshake", "the TLS handshake failed: no certificate, or a bad one"
            ) from fault
        finally:
            self._unproven -= 1
        id, reason = self._judge(shown, "")
        if reason:
            raise Wrong("certificate", f"{id or 'a stranger'} is refused: {reason}")
        if self._held[id] >= PER_KEY_MAX:
            raise Wrong("connections", f"{id} holds {PER_KEY_MAX} connections already")
        return session, id

    async def _hand_on(self, session: _Session, id: str, outside: Ends) -> None:
        self._count += 1
        path = str(self._folder / f"in-{self._count}")
        inside = socket.socket(socket.AF_UNIX)
        inside.setblocking(False)
        self._held[id] += 1
        self._callers[path] = id
        try:
            inside.bind(path)
            await asyncio.get_running_loop().sock_connect(inside, str(self._folder / "inside"))
            ends = Ends(*await asyncio.open_unix_connection(sock=inside, limit=CHUNK))
            with _closing(ends.writer):
                await session.carry(outside, ends)
        finally:
            inside.close()
            self._callers.pop(path, None)
            self._held[id] -= 1
            self._held += Counter()  # forget zeros
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
            except (OSError, TimeoutError):
                self._faults[key] = f"nobody answers at {endpoint}"
                return
            with _closing(outside.writer):
                await self._carry_out(key, inside, outside)

    async def _carry_out(self, key: tuple[Address, str], inside: Ends, outside: Ends) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                session = _Session(self._context(), server=False)
                shown = await session.shake_hands(outside)
            id, reason = self._judge(shown, key[1])
            if reason:
                raise Wrong("certificate", f"{id or 'a stranger'} answers at {key[0]}: {reason}")
            if not await session.carry(outside, inside, lambda: self._faults.pop(key, None)):
                self._faults[key] = (
                    f"{key[0]} hung up right after the TLS handshake: it refuses this node's key, "
                    "and its own log says why"
                )
        except Wrong as fault:
            self._faults[key] = str(fault)
            self._tell(fault.kind, key[0], str(fault))
        except TimeoutError:
            self._faults[key] = f"{key[0]} does not speak TLS within {HANDSHAKE_S:g} s"
        except SSL.Error:
            self._faults[key] = f"{key[0]} refused the connection, or does not speak TLS"
        except OSError:
            pass  # it went away; gRPC calls again

    def _context(self) -> SSL.Context:
        key, certificate = self._credentials()
        context = SSL.Context(SSL.TLS_METHOD)
        context.set_min_proto_version(SSL.TLS1_3_VERSION)
        # Nobody comes in again by a ticket, without showing a certificate.
        context.set_options(SSL.OP_NO_TICKET)
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        context.use_privatekey(key)
        context.use_certificate(certificate)
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _anyone)
        context.set_alpn_protos([b"h2"])
        context.set_alpn_select_callback(
            lambda _, offered: b"h2" if b"h2" in offered else SSL.NO_OVERLAPPING_PROTOCOLS
        )
        return context

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


def _anyone(*_: object) -> bool:
    """Let any certificate through TLS, which proves the key behind it; the judge comes after."""
    return True


def drop_unheard(writer: asyncio.StreamWriter) -> None:
    """Let the kernel end a connection whose other end is cut off.

    TCP by itself goes on for minutes, each try twice as late: a node whose network is back would be
    found only then. Systems without the option (it is Linux's) wait for gRPC's own pings.
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


class _Session:
    """One TLS connection in memory: bytes of the wire on one side, plain ones on the other."""

    def __init__(self, context: SSL.Context, server: bool) -> None:
        self._tls = SSL.Connection(context, None)
        self._server = server
        self._heard = False
        if server:
            self._tls.set_accept_state()
        else:
            self._tls.set_connect_state()

    async def shake_hands(self, outside: Ends) -> bytes:
        """Carry the handshake through; return the other end's certificate in DER."""
        first = self._server
        while True:
            try:
                self._tls.do_handshake()
                break
            except SSL.WantReadError:
                pass
            await self._flush(outside)
            data = await outside.reader.read(CHUNK)
            if first and data and data[0] != _TLS_HANDSHAKE:
                raise Wrong("plain text", "it speaks plain text, and this node takes TLS alone")
            first = False
            if not data:
                raise Wrong("handshake", "it hung up in the TLS handshake")
            self._tls.bio_write(data)
        await self._flush(outside)
        shown = self._tls.get_peer_certificate(as_cryptography=True)
        return b"" if shown is None else shown.public_bytes(Encoding.DER)

    async def carry(
        self, outside: Ends, inside: Ends, heard: Callable[[], object] = lambda: None
    ) -> bool:
        """Carry bytes both ways until either end is through; call `heard` whenever some came in.

        Return False where the other end hung up before any did.
        """
        ways = [
            asyncio.ensure_future(self._inwards(outside, inside, heard)),
            asyncio.ensure_future(self._outwards(inside, outside)),
        ]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in done:
                way.result()
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        return self._heard or ways[0] not in done

    async def _inwards(self, outside: Ends, inside: Ends, heard: Callable[[], object]) -> None:
        while True:
            try:
                while True:
                    inside.writer.write(self._tls.recv(CHUNK))
                    self._heard = True
                    heard()
            except SSL.WantReadError:
                pass
            except SSL.ZeroReturnError:
                return
            await self._flush(outside)  # answers of TLS itself, such as to an update of keys
            await inside.writer.drain()
            data = await outside.reader.read(CHUNK)
            if not data:
                return
            self._tls.bio_write(data)

    async def _outwards(self, inside: Ends, outside: Ends) -> None:
        while data := await inside.reader.read(CHUNK):
            self._tls.sendall(data)
            await self._flush(outside)

    async def _flush(self, outside: Ends) -> None:
        with contextlib.suppress(SSL.WantReadError):
            while True:
                outside.writer.write(self._tls.bio_read(CHUNK))
        await outside.writer.drain()
