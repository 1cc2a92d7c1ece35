"""A member that waits for the calls of other nodes, and floods each of them where it answers."""

from __future__ import annotations

import socket
import ssl
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.e2e.attacks.http2 import ALPN, PING, SETTINGS, TIMEOUT_S, frame, pem_file

TIMES: Final = 100
FLOOD: Final = frame(PING, payload=b"12345678") * TIMES


def answering_context(key: Ed25519PrivateKey, shown: x509.Certificate) -> ssl.SSLContext:
    """Return the TLS context of a server that shows a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(list(ALPN))
    with tempfile.TemporaryDirectory() as folder:
        context.load_cert_chain(pem_file(Path(folder) / "x.pem", key, shown))
    return context


def answer_with_floods(address: str, context: ssl.SSLContext, seconds: float) -> dict[str, Any]:
    """Listen at an address and flood everybody who calls; return what came of it."""
    tally, end = Counter[str](), time.monotonic() + seconds
    host, port = address.rsplit(":", 1)

    def flood(raw: socket.socket) -> None:
        tally["called"] += 1
        try:
            raw.settimeout(TIMEOUT_S)
            with context.wrap_socket(raw, server_side=True) as wire:
                wire.sendall(frame(SETTINGS))
                while time.monotonic() < end:
                    wire.sendall(FLOOD)
                    tally["units"] += TIMES
        except OSError:
            tally["closed or refused"] += 1

    with socket.create_server((host, int(port))) as server:
        while (left := end - time.monotonic()) > 0:
            server.settimeout(left)
            try:
                raw, _ = server.accept()
            except TimeoutError:
                break
            threading.Thread(target=flood, args=(raw,), daemon=True).start()
    return dict(tally)
