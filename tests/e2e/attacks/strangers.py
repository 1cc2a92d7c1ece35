"""Handshakes of strangers: with next to no work of their own, and whole ones."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from tests.e2e.attacks.http2 import ALPN, TIMEOUT_S, Wire, rest, stranger_context

THREADS: Final = 2
AGAIN_S: Final = 0.01


def recorded() -> bytes:
    """Return a ClientHello."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(list(ALPN))
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(into, out).do_handshake()
    return out.read()


def hellos(address: str, seconds: float, source: str) -> dict[str, Any]:
    """Send a ClientHello in each connection, wait for the signature, and hang up."""
    said = recorded()
    host, port = address.rsplit(":", 1)

    def knock() -> None:
        with socket.create_connection((host, int(port)), TIMEOUT_S, (source, 0)) as raw:
            raw.sendall(said)
            if not raw.recv(4096):
                raise ConnectionError("refused")

    return _again(knock, seconds)


def completed(address: str, seconds: float, source: str) -> dict[str, Any]:
    """Complete a handshake in each connection, and wait until the node hangs up."""
    context = stranger_context()

    def knock() -> None:
        wire = Wire(address, context, source)
        try:
            wire.socket.settimeout(TIMEOUT_S)
            wire.socket.recv(1)
        finally:
            wire.close()

    return _again(knock, seconds)


def _again(knock: Callable[[], None], seconds: float) -> dict[str, Any]:
    """Knock again and again from THREADS threads; return how often it went well."""
    tally, end = Counter[str](), time.monotonic() + seconds

    def work() -> None:
        while time.monotonic() < end:
            try:
                knock()
                tally["done"] += 1
            except OSError:
                tally["refused"] += 1
                rest(AGAIN_S)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 30)
    return dict(tally)
