"""One attacker, as a process of its own: KIND FOLDER ADDRESS SECONDS. Loopback only.

By a member (a certificate of the mesh): the kinds of `floods.py`, and

    unfinished-30m  messages of 30 MB that lack their last bytes, 64 calls on each of 8 connections
    connections     1,000 connections at a time, TLS complete, idle
    calls           whole calls of 4 KiB as fast as they go, by gRPC itself
    waits           begins to wait at a relay, again and again, each time with other invitations
    dials           dials a node that waits at a relay, again and again

By a stranger:

    storm           connects and hangs up
    half-open       500 connections that say half a hello
    noise           sends random bytes
    slow            200 connections, one byte a second each
    handshakes      completes handshakes with a certificate of another mesh
    hello           sends one recorded ClientHello again and again

    spin            says nothing and burns a processor: the control

It prints one JSON object: what it did, and what it met.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc.aio

from fednode.errors import FednodeError
from fednode.transports.exchange import DELIVER
from fednode.transports.relay_service import DIAL, TO, WAIT
from fednode.wire.gen import relay_pb2
from tests.contract.faults import pause
from tests.e2e.attacks import ends
from tests.e2e.attacks.floods import KINDS, flood, spin
from tests.e2e.attacks.http2 import (
    ALPN,
    PREFACE,
    SETTINGS,
    TIMEOUT_S,
    Wire,
    context_of,
    frame,
    in_threads,
    rest,
    stranger_context,
)
from tests.e2e.attacks.unfinished import message, stuff
from tests.unit.identity.people import invitation_key

SOURCE: Final = "127.0.0.66"
HALF_HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
THREADS: Final = 8
AT_ONCE: Final = 32
Place = tuple[str, int]
Attack = Callable[[Path, str, float], dict[str, Any]]


def unfinished_30m(wire: Wire) -> Iterator[int]:
    """Send all of a message of 30 MB but its last bytes."""
    size = 30 << 20
    return stuff(wire, DELIVER, message(bytes(size)), size - 100)


def place_of(address: str) -> Place:
    """Return host and port."""
    host, port = address.rsplit(":", 1)
    return host, int(port)


def dial(at: Place) -> socket.socket:
    """Open a connection from the attacker's own address."""
    return socket.create_connection(at, TIMEOUT_S, (SOURCE, 0))


def again_and_again(
    act: Callable[[Place, Counter[str]], None], _: Path, address: str, seconds: float
) -> dict[str, Any]:
    """Do something as often as possible in several threads."""
    tally, end, at = Counter[str](), time.monotonic() + seconds, place_of(address)

    def work() -> None:
        while time.monotonic() < end:
            try:
                act(at, tally)
                tally["done"] += 1
            except OSError as fault:
                tally[type(fault).__name__] += 1
                rest(0.01)

    in_threads(work, THREADS, seconds)
    return dict(tally)


def hold(
    count: int, make: Callable[[Place], Any], drip: bytes, _: Path, address: str, seconds: float
) -> dict[str, Any]:
    """Hold so many connections at a time; open again what is closed."""
    held: list[Any] = []
    tally, end, most, due = Counter[str](), time.monotonic() + seconds, 0, 0.0
    at = place_of(address)
    while time.monotonic() < end:
        while len(held) < count and time.monotonic() < end:
            try:
                held.append(make(at))
                held[-1].setblocking(False)
                tally["opened"] += 1
            except OSError as fault:
                tally[type(fault).__name__] += 1
                if tally.total() % 20 == 0:
                    break
        most = max(most, len(held))
        drips = drip if time.monotonic() > due else b""
        due = time.monotonic() + 1 if drips else due
        held = [one for one in held if _alive(one, drips, tally)]
        rest(0.05)
    return {"held at the end": len(held), "most": most, **tally}


def _alive(one: Any, drip: bytes, tally: Counter[str]) -> bool:
    """Send a little on a connection; tell whether it is still open."""
    try:
        if drip:
            one.send(drip)
        if one.recv(65536) == b"":
            raise ConnectionError
    except (ssl.SSLWantReadError, BlockingIOError):
        pass
    except OSError:
        tally["closed by the node"] += 1
        one.close()
        return False
    return True


def recorded_hello() -> bytes:
    """Return a ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(list(ALPN))
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def said(data: Callable[[], bytes], at: Place, _: Counter[str]) -> None:
    """Say something on a new connection, and wait for the answer."""
    with dial(at) as one:
        one.sendall(data())
        one.settimeout(TIMEOUT_S)
        one.recv(100)


def shaken(context: ssl.SSLContext, at: Place, tally: Counter[str]) -> None:
    """Complete a handshake, and wait until the node hangs up."""
    with context.wrap_socket(dial(at)) as one:
        tally["completed"] += 1
        one.settimeout(TIMEOUT_S)
        one.recv(100)


def half(at: Place) -> socket.socket:
    """Open a connection, and say half a hello."""
    made = dial(at)
    made.sendall(HALF_HELLO)
    return made


def idle(folder: Path, address: str, seconds: float) -> dict[str, Any]:
    """Hold 1,000 connections of a member."""
    context = context_of(ends.credential(folder, "mallory"))

    def made(at: Place) -> Any:
        one = context.wrap_socket(dial(at))
        one.sendall(PREFACE + frame(SETTINGS))
        return one

    return hold(1000, made, b"", folder, address, seconds)


async def in_tasks(act: Callable[[Counter[str]], Any], seconds: float) -> dict[str, Any]:
    """Do something as often as possible in many tasks."""
    tally, end = Counter[str](), time.monotonic() + seconds

    async def work() -> None:
        while time.monotonic() < end:
            try:
                await act(tally)
            except FednodeError as fault:
                tally[str(fault)[:60]] += 1
                await pause(0)
            except grpc.aio.AioRpcError as fault:
                tally[f"{fault.code().name}: {fault.details()}"[:60]] += 1
                await pause(0)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return dict(tally)


async def whole_calls(folder: Path, address: str, seconds: float) -> dict[str, Any]:
    """Send whole frames."""
    one, said = ends.transport(folder, "mallory"), os.urandom(4096)

    async def act(tally: Counter[str]) -> None:
        await one.send(address, said, TIMEOUT_S, "v")
        tally["answered"] += 1

    try:
        return await in_tasks(act, seconds)
    finally:
        await one.close()


async def relay_calls(method: str, folder: Path, address: str, seconds: float) -> dict[str, Any]:
    """Call a relay: wait there, or dial a node."""
    one = ends.transport(folder, "mallory")
    channel = await one.channel(address, ends.RELAY)

    async def wait(tally: Counter[str]) -> None:
        keys = [invitation_key(os.urandom(16)) for _ in range(64)]
        asked = relay_pb2.WaitRequest(invitations=keys)
        call = channel.unary_stream(WAIT, relay_pb2.WaitRequest.SerializeToString)(asked)
        if await call.read() is grpc.aio.EOF:
            await call
        tally["waited"] += 1
        call.cancel()

    async def connect(tally: Counter[str]) -> None:
        call = channel.stream_stream(DIAL)(metadata=((TO, b"v"),))
        await call.initial_metadata()
        tally["connected" if not call.done() else str((await call.code()).name)] += 1
        call.cancel()

    try:
        return await in_tasks(wait if method == WAIT else connect, seconds)
    finally:
        await channel.close()
        await one.close()


def by_member(kind: Callable[[Wire], Iterator[int]]) -> Attack:
    """Return the attack of a flood with a member's certificate."""

    def attack(folder: Path, address: str, seconds: float) -> dict[str, Any]:
        context = context_of(ends.credential(folder, "mallory"))
        return flood(kind, address, lambda: context, seconds, SOURCE)

    return attack


def in_loop(work: Callable[..., Any]) -> Attack:
    """Return the attack that an event loop runs."""
    return lambda folder, address, seconds: asyncio.run(work(folder, address, seconds))


def control(_: Path, __: str, seconds: float) -> dict[str, Any]:
    """Burn a processor."""
    spin(time.monotonic() + seconds)
    return {}


def _stranger_handshakes(folder: Path, address: str, seconds: float) -> dict[str, Any]:
    return again_and_again(partial(shaken, stranger_context()), folder, address, seconds)


MEMBERS: Final[dict[str, Attack]] = {
    **{name: by_member(kind) for name, kind in KINDS.items()},
    "unfinished-30m": by_member(unfinished_30m),
    "connections": idle,
    "calls": in_loop(whole_calls),
}
STRANGERS: Final[dict[str, Attack]] = {
    "storm": partial(again_and_again, lambda at, _: dial(at).close()),
    "half-open": partial(hold, 500, half, b""),
    "noise": partial(again_and_again, partial(said, lambda: os.urandom(16 << 10))),
    "slow": partial(hold, 200, half, b"x"),
    "handshakes": _stranger_handshakes,
    "hello": partial(again_and_again, partial(said, recorded_hello)),
}
AT_RELAYS: Final[dict[str, Attack]] = {
    "waits": in_loop(partial(relay_calls, WAIT)),
    "dials": in_loop(partial(relay_calls, DIAL)),
}
ATTACKS: Final = MEMBERS | STRANGERS | AT_RELAYS | {"spin": control}


def main(kind: str, folder: str, address: str, seconds: str) -> None:
    """Attack, and print what came of it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    assert address.startswith("127."), address
    print(json.dumps(ATTACKS[kind](Path(folder), address, float(seconds))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
