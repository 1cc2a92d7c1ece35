"""What a connection may show and say: versions of TLS, certificates, tickets, revoked keys."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from tests.contract.faults import pause
from tests.e2e.attacks.floods import EMPTY, HEALTH
from tests.e2e.attacks.http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    context_of,
    frame,
    pem_file,
    request,
    rest,
)
from tests.e2e.attacks.lab import CLOSED_FORM, HOSTILE, Lab

WAIT_S: Final = 3.0
UPDATES: Final = 300


def shown(key: Ed25519PrivateKey, name: str, **changed: Any) -> x509.Certificate:
    """Return a certificate of a key, with another name, other days or a large extension."""
    first, last = changed.get("days", (-1, 30))
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now + datetime.timedelta(days=first))
        .not_valid_after(now + datetime.timedelta(days=last))
    )
    if changed.get("bytes"):
        kind = x509.ObjectIdentifier("1.3.6.1.4.1.99999.1")
        made = made.add_extension(x509.UnrecognizedExtension(kind, bytes(changed["bytes"])), False)
    return made.sign(key, None)


def greeted(at: str, context: ssl.SSLContext, session: Any = None) -> tuple[str, Any]:
    """Connect and begin HTTP/2; return "answered" or what happened, and the socket."""
    host, port = at.rsplit(":", 1)
    try:
        wire = context.wrap_socket(
            socket.create_connection((host, int(port)), WAIT_S), session=session
        )
        wire.settimeout(WAIT_S)
        wire.sendall(PREFACE + frame(SETTINGS))
        return ("answered" if wire.recv(1000) else "closed"), wire
    except TimeoutError:
        return "silence", None
    except OSError as fault:
        return f"refused ({type(fault).__name__})", None


async def tls(folder: Path) -> int:
    """Try what a connection may show."""
    async with Lab(folder, settings=CLOSED_FORM) as lab:
        key, listed = lab.identity(HOSTILE).credentials()
        stranger = Ed25519PrivateKey.generate()
        old = context_of(key, listed)
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
        usual = context_of(key, listed)
        tries: dict[str, tuple[ssl.SSLContext, bool]] = {
            "the listed key": (usual, True),
            "TLS 1.2": (old, False),
            "ALPN http/1.1": (context_of(key, listed, ("http/1.1",)), False),
            "no ALPN": (context_of(key, listed, ()), False),
            "the listed key, another member's name": (context_of(key, shown(key, "b")), True),
            "a stranger's key, a member's name": (
                context_of(stranger, shown(stranger, "b")),
                False,
            ),
            "an extension of 4 kB": (context_of(key, shown(key, "d", bytes=4000)), True),
            "an extension of 60 kB": (context_of(key, shown(key, "d", bytes=60_000)), False),
            "a certificate that expired": (context_of(key, shown(key, "d", days=(-9, -1))), False),
            "a certificate of the future": (context_of(key, shown(key, "d", days=(2, 9))), False),
        }
        for what, (context, welcome) in tries.items():
            found, _ = await asyncio.to_thread(greeted, lab.at["a"], context)
            lab.say(what, found, fine=(found == "answered") == welcome)
        _, wire = await asyncio.to_thread(greeted, lab.at["a"], usual)
        ticket = wire.session if wire is not None else None
        _, again = await asyncio.to_thread(greeted, lab.at["a"], usual, ticket)
        taken = bool(again is not None and again.session_reused)
        lab.say("a ticket shown again", "taken" if taken else "not taken", fine=not taken)
        await asyncio.to_thread(updated, lab, key, listed)
        await lab.rounds(3)
        return lab.wrong


def updated(lab: Lab, key: Ed25519PrivateKey, listed: x509.Certificate) -> None:
    """Ask both ends for new keys again and again, by the program openssl."""
    if shutil.which("openssl") is None:
        print("key updates: not tried, there is no program openssl")
        return
    path = pem_file(lab.folder / "hostile.pem", key, listed)
    words = ["openssl", "s_client", "-connect", lab.at["a"], "-cert", str(path), "-key", str(path)]
    program = subprocess.Popen(
        [*words, "-alpn", "h2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert program.stdin is not None
    count = 0
    try:
        with contextlib.suppress(BrokenPipeError):
            while count < UPDATES:
                program.stdin.write(b"K\n")
                program.stdin.flush()
                count += 1
                rest(0.01)
    finally:
        program.kill()
        program.wait()
    lab.say("key updates that were asked for", count, fine=True)


# Revocation ---------------------------------------------------------------------------------------


def called(number: int, path: str) -> bytes:
    """Return an empty call of a method."""
    block = frame(HEADERS, END_HEADERS, number, request(path))
    return block + frame(DATA, END_STREAM, number, EMPTY)


async def revoked(folder: Path) -> int:
    """Speak on after the own key was revoked."""
    async with Lab(folder, settings=CLOSED_FORM) as lab:
        context = context_of(*lab.identity(HOSTILE).credentials())
        found, wire = await asyncio.to_thread(greeted, lab.at["a"], context)
        lab.say("the member's connection", found, fine=found == "answered")
        proof = lab.book.revoke(HOSTILE, lab.identity(HOSTILE).id)
        where = ("--state", str(folder / "a"), "--peers", str(folder / "peers.yaml"))
        words = (sys.executable, "-m", "fednode.cli", "identity", "revoke", lab.at["a"], proof)
        await asyncio.to_thread(subprocess.run, [*words, *where], check=True, timeout=60)
        await pause(1.0)
        for what, said in {
            "PING": frame(PING, payload=b"12345678"),
            "health.Check": called(1, HEALTH),
            "status": called(3, "/fednode.v1.Node/Status"),
        }.items():
            state = await asyncio.to_thread(still, wire, said)
            lab.say(f"{what} on the open connection", state, fine=state == "closed")
        for name in lab.names:
            await lab.status(name)
            found, _ = await asyncio.to_thread(greeted, lab.at[name], context)
            lab.say(f"a new connection to {name}", found, fine=found != "answered")
        await lab.rounds(3)
        return lab.wrong


def still(wire: Any, said: bytes) -> str:
    """Say something on a connection; return "closed" if the other end closed it."""
    try:
        wire.settimeout(WAIT_S)
        wire.sendall(said)
        while wire.recv(1 << 16):
            pass
    except TimeoutError:
        return "open"
    except OSError:
        pass
    return "closed"
