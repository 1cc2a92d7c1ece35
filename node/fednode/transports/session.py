"""One TLS connection in memory, between the bytes on the wire and the plain bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL import SSL

from fednode.transports.line import Line
from fednode.transports.refusing import Why, unpacked

CHUNK: Final = 64 << 10
RECORD: Final = 16 << 10
"""The most plain bytes of a TLS record (RFC 8446, section 5.1), and so of one `recv`."""
_TLS_HANDSHAKE: Final = 0x16

H2: Final = b"h2"
"""What a caller offers (ALPN) to speak gRPC."""
RELAYING: Final = b"fednode-relay/1"
"""What a caller offers (ALPN) to speak to a relay."""
ADMITTING: Final = b"fednode-admit/1"
"""What a newcomer offers (ALPN) to ask a member for a lease."""
HANDSHAKE_BYTES_MAX: Final = 64 << 10
"""Bytes that the other end may send in a handshake; a certificate with a lease has 2 KiB."""
HANDSHAKE_READS_MAX: Final = 100
"""Pieces in which these bytes may come: each costs a turn of the event loop."""
SEALED: Final = CHUNK + 1024
"""What CHUNK plain bytes become in TLS, with some room: it adds 22 bytes to each record."""
BROKEN: Final = "broken"
"""The kind of a connection whose bytes are not those that the other end sent."""
UNHEARD_MS: Final = 10_000
"""A connection whose bytes are not acknowledged for this long is dropped, and opened anew."""


class PeerRejected(Exception):
    """A connection is refused. kind: for counting; text: a sentence; id: of the other end."""

    def __init__(self, kind: str, text: str, id: str = "") -> None:
        super().__init__(text)
        self.kind, self.id = kind, id


class Reader(Protocol):
    """The direction that comes in, as asyncio.StreamReader has it."""

    async def read(self, n: int = -1) -> bytes:
        """Return the next bytes, at most n; b"" at the end."""
        ...


class Writer(Protocol):
    """The direction that goes out, as asyncio.StreamWriter has it."""

    def write(self, data: bytes) -> None:
        """Send bytes as soon as there is room."""
        ...

    async def drain(self) -> None:
        """Wait until there is room."""
        ...

    def close(self) -> None:
        """End the connection, both ways."""
        ...


@dataclass(slots=True)
class Ends:
    """The two directions of one side of a connection.

    via: the relay on the way; "" for none. source: where the relay says that the caller comes from.
    """

    reader: Reader
    writer: Writer
    via: str = ""
    source: str = ""


class Session:
    """One TLS connection in memory: wire bytes on one side, plain bytes on the other."""

    def __init__(self, context: SSL.Context, server: bool, offer: bytes = H2) -> None:
        """Begin. offer: what the caller's side wants to speak (ALPN)."""
        self._tls = SSL.Connection(context, None)
        if not server:
            self._tls.set_alpn_protos([offer])
        self._server = server
        self._heard = False
        self.refusal: tuple[Why, bytes] | None = None
        """Why the other end refuses this caller, if it said so."""
        self._unanswered = 0  # bytes that came since the last bytes that went
        if server:
            self._tls.set_accept_state()
        else:
            self._tls.set_connect_state()

    def hello(self) -> bytes:
        """Begin the handshake as a caller; return its first bytes, which the caller has to send."""
        with contextlib.suppress(SSL.WantReadError):
            self._tls.do_handshake()
        return bytes(self._tls.bio_read(SEALED))

    async def shake_hands(self, outside: Ends) -> bytes:
        """Complete the handshake; return the other end's certificate in DER."""
        first, size, reads = self._server, 0, 0
        while True:
            try:
                self._tls.do_handshake()
                break
            except SSL.WantReadError:
                pass
            await self._flush(outside)
            data = await outside.reader.read(CHUNK)
            if first and data and data[0] != _TLS_HANDSHAKE:
                raise PeerRejected(
                    "plain text", "it speaks plain text, and this node takes TLS alone"
                )
            first = False
            if not data:
                raise PeerRejected("handshake", "it hung up in the TLS handshake")
            size, reads = size + len(data), reads + 1
            if size > HANDSHAKE_BYTES_MAX or reads > HANDSHAKE_READS_MAX:
                raise PeerRejected("handshake", "its TLS handshake has too many bytes or pieces")
            self._tls.bio_write(data)
        await self._flush(outside)
        if not self.speaks:
            raise PeerRejected("handshake", "it does not speak HTTP/2 (ALPN h2)")
        shown = self._tls.get_peer_certificate(as_cryptography=True)
        return b"" if shown is None else shown.public_bytes(Encoding.DER)

    @property
    def speaks(self) -> bytes:
        """Return what both ends agreed to speak (ALPN); b"" before the handshake."""
        return bytes(self._tls.get_alpn_proto_negotiated())

    async def first_words(self, outside: Ends, line: Line) -> bytes:
        """Return the first plain bytes that come in; b"" where the other end hung up before any."""
        while True:
            with contextlib.suppress(SSL.WantReadError):
                plain = self._plain()
                line.came(plain)
                return plain
            await self._flush(outside)
            if not line.free():
                await line.permit()
            if not await self._read(outside, line):
                return b""

    async def _read(self, outside: Ends, line: Line) -> bool:
        """Take what comes over the wire next; return False at the end."""
        data = await outside.reader.read(CHUNK)
        if data:
            line.sealed(len(data))
            self._unanswered += len(data)
            self._tls.bio_write(data)
        return bool(data)

    def _plain(self) -> bytes:
        """Return plain bytes that are there, b"" at the end; raise WantReadError for none yet."""
        try:
            plain: bytes = self._tls.recv(RECORD)
        except SSL.ZeroReturnError:
            return b""
        except SSL.WantReadError:
            raise
        except SSL.Error as fault:
            raise PeerRejected(BROKEN, _why(fault)) from fault
        if not (self._heard or self._server) and (refusal := unpacked(plain)):
            self.refusal = refusal
            return b""
        self._heard = True
        return plain

    def end(self, outside: Ends, last: bytes) -> None:
        """Send the last plain bytes, without waiting for room."""
        with contextlib.suppress(SSL.Error):
            self._tls.sendall(last)
            self._push(outside)

    async def carry(
        self, outside: Ends, inside: Ends, line: Line, heard: Callable[[], object] = lambda: None
    ) -> bool:
        """Carry bytes both ways until either end closes; call `heard` whenever bytes came in.

        Return False if the other end hung up before any bytes came in; raise Flood if it floods.
        """
        ways = [
            asyncio.ensure_future(self._inwards(outside, inside, line, heard)),
            asyncio.ensure_future(self._outwards(inside, outside, line)),
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

    async def _inwards(
        self, outside: Ends, inside: Ends, line: Line, heard: Callable[[], object]
    ) -> None:
        ended = False
        while not ended:
            if not line.free():
                await line.permit()
            pieces, starved = list[bytes](), False
            try:
                while plain := self._plain():
                    line.came(plain)
                    pieces.append(plain)
                    if not line.free():
                        break
                else:
                    ended = True
            except SSL.WantReadError:
                starved = True
            if pieces:  # in one piece, because each piece costs a call of the system
                inside.writer.write(b"".join(pieces))
                heard()
            # TLS's own answers, such as to a key update, go with the next bytes that gRPC has for
            # the other end; but they are not left to grow.
            if not pieces or self._unanswered > CHUNK:
                await self._flush(outside)
            await inside.writer.drain()
            if starved and not await self._read(outside, line):
                return

    async def _outwards(self, inside: Ends, outside: Ends, line: Line) -> None:
        while data := await inside.reader.read(CHUNK):
            line.went(data)
            try:
                self._tls.sendall(data)
            except SSL.Error as fault:
                raise ConnectionError("the other end closed the connection") from fault
            await self._flush(outside)

    async def _flush(self, outside: Ends) -> None:
        self._push(outside)
        await outside.writer.drain()

    def _push(self, outside: Ends) -> None:
        """Write what TLS has for the wire, without waiting for room."""
        self._unanswered = 0
        with contextlib.suppress(SSL.WantReadError):
            full = True
            while full:
                sealed = self._tls.bio_read(SEALED)
                outside.writer.write(sealed)
                full = len(sealed) == SEALED


class Inner:
    """The plain bytes of a session as a connection of its own, both reader and writer.

    Another session may run inside of it, as streams through a relay do.
    """

    def __init__(self, session: Session, outside: Ends, piece: int = CHUNK) -> None:
        """Begin after the handshake. piece: the most bytes of one read of the wire."""
        self._session, self._outside, self._piece = session, outside, piece

    async def read(self, n: int = -1) -> bytes:
        """Return plain bytes, at most n, as soon as there are any; b"" at the end.

        Raise ConnectionError if what came is no TLS.
        """
        session, most = self._session, n if n > 0 else self._piece
        while True:
            pieces, left = list[bytes](), most
            try:
                while left and (plain := session._tls.recv(min(RECORD, left))):
                    pieces.append(plain)
                    left -= len(plain)
            except SSL.WantReadError:
                session._push(self._outside)  # TLS's own answers
            except SSL.ZeroReturnError:
                return b"".join(pieces)
            except SSL.Error as fault:
                raise ConnectionError("what came is no TLS") from fault
            if pieces:
                return b"".join(pieces)
            data = await self._outside.reader.read(self._piece)
            if not data:
                return b""
            session._tls.bio_write(data)

    def write(self, data: bytes) -> None:
        """Send plain bytes as soon as there is room."""
        if data:
            self._session._tls.sendall(data)
            self._session._push(self._outside)

    async def drain(self) -> None:
        """Wait until there is room."""
        await self._outside.writer.drain()

    def close(self) -> None:
        """End the connection, both ways."""
        self._outside.writer.close()

    @property
    def ends(self) -> Ends:
        """Return both directions."""
        return Ends(self, self)


def showing(
    key: Ed25519PrivateKey,
    certificate: x509.Certificate,
    guests: Callable[[], SSL.Context | None] = lambda: None,
) -> SSL.Context:
    """Return what connections are made of that show a certificate.

    guests: returns what connections of newcomers are made of, who do not see the certificate; it
    returns None if they are not answered now.
    """
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_min_proto_version(SSL.TLS1_3_VERSION)
    # Nobody comes in again by a ticket, without showing a certificate. OpenSSL still sends two
    # tickets that open nothing; pyOpenSSL has no call that sets their number to 0.
    context.set_options(SSL.OP_NO_TICKET)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)  # a connection without traffic holds none
    context.use_privatekey(key)
    context.use_certificate(certificate)
    context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _anyone)

    def chosen(
        session: SSL.Connection, offered: list[bytes]
    ) -> bytes | SSL._NoOverlappingProtocols:
        """Return what to speak of what a caller offers; it comes before any certificate."""
        for protocol in (H2, RELAYING):
            if protocol in offered:
                return protocol
        theirs = guests() if ADMITTING in offered else None
        if theirs is None:
            return SSL.NO_OVERLAPPING_PROTOCOLS
        session.set_context(theirs)
        return ADMITTING

    context.set_alpn_select_callback(chosen)
    return context


def drop_unheard(writer: asyncio.StreamWriter) -> None:
    """Let the operating system end a connection whose other end is cut off.

    TCP by itself tries for minutes, with growing pauses, so a node whose network is back would be
    found only then. Systems without this option (it is Linux's) wait for gRPC's own pings.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        own = writer.get_extra_info("socket")
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_MS)


def _why(fault: SSL.Error) -> str:
    """Return why a connection that was proved is no TLS any more."""
    found = fault.args[0] if fault.args else ""
    words = str(found[0][-1] if isinstance(found, list) and found else found)
    # An alert is the other end's own word that it will not go on.
    return (
        f"{'it ended TLS' if 'alert' in words else 'its bytes were changed on the way'} ({words})"
    )


def _anyone(*_: object) -> bool:
    """Return True: TLS proves who holds the key, and the judge decides afterwards."""
    return True
