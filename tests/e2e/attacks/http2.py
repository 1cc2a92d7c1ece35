"""HTTP/2 by hand over TLS: what a caller can say that no gRPC library says. For attackers only."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import tempfile
import threading
from collections.abc import Callable, Iterable
from typing import Final

from fednode.identity.certificates import Credential
from tests.unit.identity.people import SmallMesh

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
ACK: Final = 1
END_STREAM: Final = 1
END_HEADERS: Final = 4
TIMEOUT_S: Final = 3.0
WINDOW_BYTES: Final = 65_535
FRAME_BYTES: Final = 16_384
ALPN: Final = ("h2",)


def rest(seconds: float) -> None:
    """Let an attacker's thread do nothing for a while."""
    select.select((), (), (), seconds)


def in_threads(work: Callable[[], None], threads: int, seconds: float) -> None:
    """Run the same work in so many threads, and wait for its end after some seconds."""
    running = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(seconds + 30)


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """Return one HTTP/2 frame."""
    head = struct.pack(">I", len(payload))[1:] + bytes((kind, flags))
    return head + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Return a header field in HPACK, without an index and without Huffman's code."""
    return b"\x00" + _text(name) + _text(value)


def _text(text: bytes) -> bytes:
    """Return a length as HPACK writes it in seven bits and more, and the text."""
    if len(text) < 127:
        return bytes((len(text),)) + text
    left, head = len(text) - 127, bytearray((127,))
    while left >= 128:
        head.append(left % 128 + 128)
        left //= 128
    return bytes((*head, left)) + text


def request(path: str, more: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """Return the header block of a gRPC call."""
    fields = (
        *((b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode())),
        *((b":authority", b"x"), (b"te", b"trailers"), (b"content-type", b"application/grpc")),
        *more,
    )
    return b"".join(literal(*field) for field in fields)


def context_of(shown: Credential) -> ssl.SSLContext:
    """Return a TLS context that shows a certificate and takes any."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(list(ALPN))
    with tempfile.NamedTemporaryFile() as file:
        file.write(shown.key + shown.chain)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def stranger_context() -> ssl.SSLContext:
    """Return a TLS context that shows a certificate of another mesh."""
    return context_of(SmallMesh("other").credential("x"))


class Wire:
    """One connection by hand: it sends any bytes, and reads what is there."""

    def __init__(self, address: str, context: ssl.SSLContext, source: str = "127.0.0.1") -> None:
        """Connect from an address of this machine; raise OSError if the other end refuses."""
        host, port = address.rsplit(":", 1)
        raw = socket.create_connection((host, int(port)), TIMEOUT_S, (source, 0))
        try:
            self.socket = context.wrap_socket(raw)
        except BaseException:
            raw.close()
            raise
        self.heard = False
        """Whether the flood itself reads what the other end says."""

    def begin(self) -> None:
        """Say what a caller of HTTP/2 says first."""
        self.send(PREFACE + frame(SETTINGS))
        rest(0.05)
        self.send(frame(SETTINGS, ACK))

    def send(self, data: bytes) -> None:
        """Send all bytes; raise OSError if the other end closed or takes none for a while."""
        self.socket.settimeout(TIMEOUT_S)
        self.socket.sendall(data)

    def drain(self, most: int = 1 << 20) -> bytes:
        """Return what came; raise ConnectionError at the end."""
        found = []
        self.socket.setblocking(False)
        try:
            while most > 0:
                data = self.socket.recv(1 << 16)
                if not data:
                    raise ConnectionError("closed by the node")
                found.append(data)
                most -= len(data)
        except (ssl.SSLWantReadError, BlockingIOError):
            pass
        return b"".join(found)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()
