"""One attacker against a live mesh, as a process of its own: for `siege.py`.

    python -m tests.e2e.attacks.attacker ATTACK FOLDER SECONDS NAME=HOST:PORT ...

    readdress   says to each node, 50 times a second, that it is at an address not named before
    streams     opens 256 streams to each node and leaves them idle: half are the health service's
                Watch, half are frames of which it sends the first piece alone
    silent      opens 1,000 connections to an introducer and says nothing; three in four of them
                complete the TLS handshake, with 128 keys that it made itself
    headers     opens 1,010 connections to a page, and sends one header of its request every 2 s

    spin        is a control: it burns the time of one processor and says nothing
    KIND        a flood of `floods.py` over eight connections to node a; mixed: all in turns
    answering   listens at the address of d, and floods each node that calls it with PING
    newcomer-KIND   the same by keys that nobody knows, from one address, to an introducer
    hello       sends a recorded ClientHello to node a again and again, and computes nothing
    handshakes  completes handshakes with node a by a key that it made itself

readdress, streams and KIND use the listed key in FOLDER/d. Of what is opened, all is opened at
once; what the other end closes is opened again after 5 s (a flood: 0.2 s). The attacks of callers
without a key of the mesh come from an address of their own, as from another machine. Only addresses
of 127.0.0.0/8 are called. The process ends after SECONDS, and prints one JSON object: what it
tried, and what it could hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import resource
import ssl
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fednode.app.network import IDENTITY, client_of, transport_of, trust_of
from fednode.core.members.lists import ANSWER
from fednode.core.types import Message, Update
from fednode.errors import FednodeError
from fednode.identity.identity import Identity
from fednode.observe.telemetry import Refusals
from fednode.settings.peers import load_peers
from fednode.transports.grpc import GrpcTransport
from fednode.wire import codec
from fednode.wire.gen import exchange_pb2, exchange_pb2_grpc
from tests.contract.faults import pause
from tests.e2e.attacks.answering import answer_with_floods, answering_context
from tests.e2e.attacks.floods import KINDS, Kind, flood, mixed, spin
from tests.e2e.attacks.http2 import context_of, stranger_context
from tests.e2e.attacks.strangers import completed, hellos

HOSTILE: Final = "d"
SOURCE: Final = "127.0.0.66"
FRAMES_S: Final = 50
UNDER_WAY: Final = 8
CONNECTIONS: Final = 8
STREAMS: Final = 256
PIECE: Final = bytes(64 << 10)
SILENT: Final = 1000
KEYS: Final = 128
HEADERS: Final = 1010
DRIP_S: Final = 2.0
AGAIN_S: Final = 5.0
"""From the end of a connection or stream to the next one in its place."""
HELD_S: Final = 1.0
"""What lasts less counts as refused."""
TIMEOUT_S: Final = 5.0
FACTS: Final = {ANSWER: "yes"}
Targets = Mapping[str, str]


@dataclass
class Tally:
    """What was tried, refused at once and closed later by the other end, and the most held."""

    tried: int = 0
    refused: int = 0
    closed: int = 0
    held: int = 0
    most: int = 0

    def hold(self, more: int) -> None:
        """Count what is held."""
        self.held += more
        self.most = max(self.most, self.held)


async def keep(tally: Tally, live: Callable[[], Awaitable[None]]) -> None:
    """Open something, wait until the other end closes it, and open it again, for ever."""
    while True:
        tally.tried += 1
        life = asyncio.ensure_future(live())
        try:
            await asyncio.wait({life}, timeout=HELD_S)
            if life.done():
                tally.refused += 1
            else:
                tally.hold(1)
                await asyncio.wait({life})
                tally.hold(-1)
                tally.closed += 1
            life.exception()
            await pause(AGAIN_S)
        finally:
            life.cancel()


async def keep_all(lives: list[Callable[[], Awaitable[None]]], seconds: float) -> dict[str, int]:
    """Keep so many things open at a time; return what came of it."""
    tally = Tally()
    tasks = [asyncio.ensure_future(keep(tally, live)) for live in lives]
    await pause(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "wanted": len(lives),
        "most held at a time": tally.most,
        "tried": tally.tried,
        "refused within a second": tally.refused,
        "closed later": tally.closed,
    }


def hostile(folder: Path) -> GrpcTransport:
    """Return a transport that shows the listed key of the attacker."""
    peers = load_peers(folder / "peers.yaml")
    identity = Identity(folder / HOSTILE / IDENTITY, peers.mesh, HOSTILE)
    return transport_of(identity, trust_of(peers), Refusals())


def place(number: int) -> str:
    """Return an address of this machine that was not named before; nobody listens there."""
    return f"127.{1 + number // 62500}.{number // 250 % 250}.{number % 250 + 2}:1"


async def readdress(folder: Path, seconds: float, targets: Targets) -> dict[str, int]:
    """Name a new address of the sender in each frame."""
    peers = load_peers(folder / "peers.yaml")
    async with client_of(peers, folder / HOSTILE, TIMEOUT_S) as client:
        seen = await client.status(next(iter(targets.values())))
    blank = Message(
        mesh=peers.mesh,
        fingerprint=seen.fingerprint,
        policy=seen.policy,
        sender=HOSTILE,
        round=0,
        phase="members",
        facts=FACTS,
    )
    id = Identity(folder / HOSTILE / IDENTITY, peers.mesh, HOSTILE).id
    transport, verdicts = hostile(folder), Counter[str]()
    loop, numbers = asyncio.get_running_loop(), iter(range(10**7))
    end = loop.time() + seconds

    async def one(name: str, address: str) -> None:
        number = next(numbers)
        news = Update(HOSTILE, "alive", number, place(number), id)
        said = replace(blank, members=(news,))
        try:
            reply = await transport.send(address, codec.encode(said, "float32"), TIMEOUT_S, name)
            verdicts[codec.decode_ack(reply)[0]] += 1
        except FednodeError:
            verdicts["no answer"] += 1

    async def talk(name: str, address: str) -> None:
        due, under_way = loop.time(), set[asyncio.Task[None]]()
        while loop.time() < end:
            due = max(due + 1 / FRAMES_S, loop.time() - 1)
            await pause(max(due - loop.time(), 0))
            under_way = {task for task in under_way if not task.done()}
            if len(under_way) < UNDER_WAY:
                under_way.add(asyncio.ensure_future(one(name, address)))
            else:
                verdicts["not sent: the node is slow"] += 1
        await asyncio.gather(*under_way)

    await asyncio.gather(*(talk(name, address) for name, address in targets.items()))
    await transport.close()
    return {"frames": next(numbers), **verdicts}


async def streams(folder: Path, seconds: float, targets: Targets) -> dict[str, int]:
    """Hold idle streams of a member."""
    lives: list[Callable[[], Awaitable[None]]] = []

    def idle(channel: grpc.aio.Channel, number: int) -> Callable[[], Awaitable[None]]:
        async def live() -> None:
            if number % 2:
                call = exchange_pb2_grpc.ExchangeStub(channel).DeliverChunks()
                await call.write(exchange_pb2.Frame(data=PIECE))
                await call
                return
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            async for _ in watch:
                pass

        return live

    async with contextlib.AsyncExitStack() as held:
        for name, address in targets.items():
            for _ in range(CONNECTIONS):
                transport = hostile(folder)
                held.push_async_callback(transport.close)
                channel = await transport.channel(address, name)
                held.push_async_callback(channel.close)
                lives += [idle(channel, number) for number in range(STREAMS // CONNECTIONS)]
        return await keep_all(lives, seconds)


async def silent(folder: Path, seconds: float, targets: Targets) -> dict[str, int]:
    """Hold connections to an introducer, and say nothing."""
    contexts = [stranger_context() for _ in range(KEYS)]

    def dumb(number: int) -> Callable[[], Awaitable[None]]:
        async def live() -> None:
            shown = contexts[number % KEYS] if number % 4 else None
            await read_to_end(targets["introducer"], shown)

        return live

    return await keep_all([dumb(number) for number in range(SILENT)], seconds)


async def headers(folder: Path, seconds: float, targets: Targets) -> dict[str, int]:
    """Hold connections to a page, and never end the headers of a request."""

    async def live() -> None:
        await read_to_end(targets["page"], None, b"GET / HTTP/1.1\r\n", b"X-More: 1\r\n")

    return await keep_all([live] * HEADERS, seconds)


async def read_to_end(
    address: str, shown: ssl.SSLContext | None, first: bytes = b"", more: bytes = b""
) -> None:
    """Hold a connection until the other end closes it; send `more` again and again."""
    host, port = address.rsplit(":", 1)
    own = (SOURCE, 0)
    reader, writer = await asyncio.open_connection(host, int(port), ssl=shown, local_addr=own)

    async def drip() -> None:
        writer.write(first)
        while more:
            await pause(DRIP_S)
            writer.write(more)

    dripping = asyncio.ensure_future(drip())
    try:
        await reader.read()
    finally:
        dripping.cancel()
        writer.close()


MIXED: Final[dict[str, Kind]] = {"mixed": mixed}
Attack = Callable[[Path, float, Targets], Coroutine[Any, Any, dict[str, Any]]]


def by_member(kind: Kind) -> Attack:
    """Return the attack that runs a flood with the listed key, at node a."""

    async def attack(folder: Path, seconds: float, targets: Targets) -> dict[str, Any]:
        mesh = load_peers(folder / "peers.yaml").mesh
        context = context_of(*Identity(folder / HOSTILE / IDENTITY, mesh, HOSTILE).credentials())
        return await asyncio.to_thread(flood, kind, targets["a"], lambda: context, seconds)

    return attack


def by_newcomers(kind: Kind) -> Attack:
    """Return the attack that runs a flood with a new key in each connection, at an introducer."""

    async def attack(folder: Path, seconds: float, targets: Targets) -> dict[str, Any]:
        at = targets["introducer"]
        return await asyncio.to_thread(flood, kind, at, stranger_context, seconds, SOURCE)

    return attack


async def answering(folder: Path, seconds: float, targets: Targets) -> dict[str, Any]:
    """Flood the nodes that call the attacker."""
    peers = load_peers(folder / "peers.yaml")
    (at,) = (peer.address for peer in peers.peers if peer.name == HOSTILE)
    shown = Identity(folder / HOSTILE / IDENTITY, peers.mesh, HOSTILE).credentials()
    return await asyncio.to_thread(answer_with_floods, at, answering_context(*shown), seconds)


async def control(folder: Path, seconds: float, targets: Targets) -> dict[str, Any]:
    """Burn the time of one processor."""
    await asyncio.to_thread(spin, time.monotonic() + seconds)
    return {}


async def hello(folder: Path, seconds: float, targets: Targets) -> dict[str, Any]:
    """Let node a sign handshakes that never end."""
    return await asyncio.to_thread(hellos, targets["a"], seconds, SOURCE)


async def handshakes(folder: Path, seconds: float, targets: Targets) -> dict[str, Any]:
    """Complete handshakes that node a then refuses."""
    return await asyncio.to_thread(completed, targets["a"], seconds, SOURCE)


ATTACKS: Final[dict[str, Attack]] = {
    "readdress": readdress,
    "streams": streams,
    "silent": silent,
    "headers": headers,
    "spin": control,
    **{name: by_member(kind) for name, kind in (KINDS | MIXED).items()},
    **{f"newcomer-{name}": by_newcomers(kind) for name, kind in (KINDS | MIXED).items()},
    "answering": answering,
    "hello": hello,
    "handshakes": handshakes,
}


def main(words: list[str]) -> None:
    """Attack for a while, and print what came of it."""
    attack, folder, seconds = ATTACKS[words[0]], Path(words[1]), float(words[2])
    targets = dict(word.split("=", 1) for word in words[3:])
    for address in targets.values():
        assert ipaddress.ip_address(address.rsplit(":", 1)[0]).is_loopback, address
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    began = time.monotonic()
    found = asyncio.run(attack(folder, seconds, targets))
    print(json.dumps({**found, "seconds": round(time.monotonic() - began)}))


if __name__ == "__main__":
    main(sys.argv[1:])
