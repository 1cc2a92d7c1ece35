"""What a connection may show and say: versions of TLS, certificates, tickets, revoked keys."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any, Final

from fednode.errors import FednodeError
from fednode.identity.certificates import Authority, Credential
from fednode.transports.grpc import GrpcTransport
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
from tests.unit.identity.people import SmallMesh

WAIT_S: Final = 3.0
UPDATES: Final = 300


def greeted(at: str, context: ssl.SSLContext, session: Any = None) -> tuple[str, Any]:
    """Connect and begin HTTP/2; return "answered" or what happened, and the socket."""
    host, port = at.rsplit(":", 1)
    raw = socket.create_connection((host, int(port)), WAIT_S)
    try:
        wire = context.wrap_socket(raw, session=session)
    except OSError as fault:
        raw.close()
        return f"refused ({type(fault).__name__})", None
    try:
        wire.settimeout(WAIT_S)
        wire.sendall(PREFACE + frame(SETTINGS))
        if wire.recv(1000):
            return "answered", wire
        found = "closed"
    except TimeoutError:
        found = "silence"
    except OSError as fault:
        found = f"refused ({type(fault).__name__})"
    wire.close()
    return found, None


async def tls(folder: Path) -> int:
    """Try what a connection may show."""
    async with Lab(folder, settings=CLOSED_FORM) as lab:
        signed = lab.signed
        member, alone = signed.credential(HOSTILE), SmallMesh("other")
        usual = context_of(member)
        old = context_of(member)
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
        own = Authority(HOSTILE, signed.key(HOSTILE))
        tries: dict[str, tuple[ssl.SSLContext, bool]] = {
            "the member's certificate": (usual, True),
            "TLS 1.2": (old, True),
            "ALPN http/1.1": (context_of(member, ("http/1.1",)), False),
            "no ALPN": (context_of(member, ()), False),
            "a member of another mesh": (context_of(alone.credential("b")), False),
            "a certificate that it signed itself": (
                context_of(Credential(member.key, own.node(HOSTILE, own.key.public_key()))),
                False,
            ),
            "a certificate that expired": (context_of(signed.credential(HOSTILE, -0.04)), False),
        }
        for what, (context, welcome) in tries.items():
            found, wire = await asyncio.to_thread(greeted, lab.at["a"], context)
            if wire is not None:
                wire.close()
            lab.say(what, found, fine=(found == "answered") == welcome)
        _, wire = await asyncio.to_thread(greeted, lab.at["a"], usual)
        ticket = wire.session if wire is not None else None
        found, again = await asyncio.to_thread(greeted, lab.at["a"], usual, ticket)
        for one in (wire, again):
            if one is not None:
                one.close()
        lab.say("a ticket shown again", found, fine=found == "answered")
        await asyncio.to_thread(updated, lab, member)
        await lab.rounds(3)
        return lab.wrong


def updated(lab: Lab, shown: Credential) -> None:
    """Ask both ends for new keys again and again, by the program openssl."""
    if shutil.which("openssl") is None:
        print("key updates: not tried, there is no program openssl")
        return
    path = pem_file(lab.folder / "hostile.pem", shown)
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
        with contextlib.suppress(BrokenPipeError):
            program.stdin.close()
    lab.say("key updates that were asked for", count, fine=True)


# Revocation ---------------------------------------------------------------------------------------


def called(number: int, path: str) -> bytes:
    """Return an empty call of a method."""
    block = frame(HEADERS, END_HEADERS, number, request(path))
    return block + frame(DATA, END_STREAM, number, EMPTY)


async def revoked(folder: Path) -> int:
    """Speak on after the own key was revoked."""
    async with Lab(folder, settings=CLOSED_FORM) as lab:
        shown = lab.signed.credential(HOSTILE)
        context = context_of(shown)
        found, wire = await asyncio.to_thread(greeted, lab.at["a"], context)
        lab.say("the member's connection", found, fine=found == "answered")
        state = await asyncio.to_thread(still, wire, called(1, HEALTH))
        lab.say("a call that names its key", state, fine=state == "open")
        await lab.revoke(HOSTILE)
        await pause(1.0)
        for what, said in {
            "PING": frame(PING, payload=b"12345678"),
            "health.Check": called(3, HEALTH),
            "status": called(5, "/fednode.v1.Node/Status"),
        }.items():
            state = await asyncio.to_thread(still, wire, said)
            lab.say(f"{what} on the open connection", state, fine=state == "closed")
        for name in lab.names:
            await lab.status(name)
            transport = GrpcTransport(lambda: shown, lab.signed.roster())
            try:
                found = str(await transport.send(lab.at[name], b"x", WAIT_S, name))
            except FednodeError as fault:
                found = str(fault)
            lab.say(f"a new connection to {name}", found, fine="was revoked" in found)
            await transport.close()
        await lab.rounds(3)
        if wire is not None:
            wire.close()
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
