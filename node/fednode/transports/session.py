"""One TLS connection in memory, between the bytes on the wire and the plain bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL import SSL

CHUNK: Final = 64 << 10
RECORD: Final = 16 << 10
"""The most plain bytes of a TLS record (RFC 8446, section 5.1), and so of one `recv`."""
_TLS_HANDSHAKE: Final = 0x16

SEALED: Final = CHUNK + 1024
"""What CHUNK plain bytes become in TLS, with some room: it adds 22 bytes to each record."""


class PeerRejected(Exception):
    """A connection is refused. kind: for counting; text: a sentence; id: of the other end."""

    def __init__(self, kind: str, text: str, id: str = "") -> None:
        super().__init__(text)
        self.kind, self.id = kind, id


@dataclass(slots=True)
class Ends:
    """The two directions of one side of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Session:
    """One TLS connection in memory: wire bytes on one side, plain bytes on the other."""

    def __init__(self, context: SSL.Context, server: bool) -> None:
        self._tls = SSL.Connection(context, None)
        self._server = server
        self._heard = False
        if server:
            self._tls.set_accept_state()
        else:
            self._tls.set_connect_state()

    async def shake_hands(self, outside: Ends) -> bytes:
        """Complete the handshake; return the other end's certificate in DER."""
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
                raise PeerRejected(
                    "plain text", "it speaks plain text, and this node takes TLS alone"
                )
            first = False
            if not data:
                raise PeerRejected("handshake", "it hung up in the TLS handshake")
            self._tls.bio_write(data)
        await self._flush(outside)
        shown = self._tls.get_peer_certificate(as_cryptography=True)
        return b"" if shown is None else shown.public_bytes(Encoding.DER)

    async def first_words(self, outside: Ends) -> bytes:
        """Return the first plain bytes that come in; b"" where the other end hung up before any."""
        while True:
            with contextlib.suppress(SSL.WantReadError):
                return self._plain()
            await self._flush(outside)
            data = await outside.reader.read(CHUNK)
            if not data:
                return b""
            self._tls.bio_write(data)

    def _plain(self) -> bytes:
        """Return plain bytes that are there, b"" at the end; raise WantReadError for none yet."""
        try:
            found: bytes = self._tls.recv(RECORD)
        except SSL.ZeroReturnError:
            return b""
        self._heard = True
        return found

    async def carry(
        self, outside: Ends, inside: Ends, heard: Callable[[], object] = lambda: None
    ) -> bool:
        """Carry bytes both ways until either end closes; call `heard` whenever bytes came in.

        Return False if the other end hung up before any bytes came in.
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
        ended = False
        while not ended:
            found: list[bytes] = []
            with contextlib.suppress(SSL.WantReadError):
                while plain := self._plain():
                    found.append(plain)
                ended = True
            if found:  # in one piece, because each piece costs a call of the system
                inside.writer.write(b"".join(found))
                heard()
            await self._flush(outside)  # TLS's own answers, such as to a key update
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
            full = True
            while full:
                found = self._tls.bio_read(SEALED)
                outside.writer.write(found)
                full = len(found) == SEALED
        await outside.writer.drain()
