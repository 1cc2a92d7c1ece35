"""Measure the memory of a relay of its own process.

    python -m tests.bench.relays memory [--nodes 1000] [--streams 4]
    python -m tests.bench.relays unread [--streams 32]

memory: what a waiting node and an idle stream take of the relay. unread: what streams take whose
readers take nothing, when they are gone, and how long a healthy stream's round trip lasts
meanwhile. Each node has a loopback address of its own. Printed and kept under runs/bench.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.identity import keys
from fednode.identity.certificate import judged, mint
from fednode.transports.address import Endpoint
from fednode.transports.links import Links
from fednode.transports.opening import RelayAt, Streams
from fednode.transports.ports import free_ports
from fednode.transports.session import CHUNK, Ends, showing
from fednode_bootstrap.relay_host import key_in, raise_descriptors
from tests.bench.figures import publish
from tests.bench.test_memory import rollup
from tests.contract.faults import pause

HOST: Final = "127.0.0.1"
KIB: Final = 1024
AT_ONCE: Final = 16
"""Nodes that connect at a time."""
TRIPS: Final = 200
PAUSE_S: Final = 0.02
WATCH_S: Final = 30.0
GUARD_S: Final = 60.0


@dataclass(slots=True)
class Site:
    """A node's key, and its links with the relay."""

    name: str
    id: str
    key: Ed25519PrivateKey
    links: Links


@dataclass(slots=True)
class Raised:
    """A relay in a process of its own, and the nodes that it admits."""

    at: RelayAt
    pid: int
    sites: list[Site]

    @property
    def kib(self) -> float:
        """Return what the process takes of its own memory, in KiB."""
        parts = [line.split() for line in rollup(self.pid).splitlines() if line.endswith("kB")]
        return float(next(part[1] for part in parts if part[0] == "Pss_Anon:"))

    @property
    def mib(self) -> float:
        """Return the process's whole memory, in MiB."""
        parts = [line.split() for line in rollup(self.pid).splitlines() if line.endswith("kB")]
        return float(next(part[1] for part in parts if part[0] == "Rss:")) / KIB


@contextlib.asynccontextmanager
async def relay(count: int) -> AsyncIterator[Raised]:
    """Run a relay that admits so many nodes."""
    raise_descriptors()
    with tempfile.TemporaryDirectory(prefix="fednode-bench-") as made:
        folder = Path(made)
        where = f"{HOST}:{free_ports(1)[0]}"
        at = RelayAt(where, keys.node_id(key_in(folder / "relay")))
        sites = [_site(number, at) for number in range(count)]
        peers = [{"name": one.name, "address": "relay", "id": one.id} for one in sites]
        listed = [{"address": at.address, "id": at.id}]
        file = folder / "peers.yaml"
        file.write_text(json.dumps({"mesh": "bench", "peers": peers, "relays": listed}))
        words = ["relay", "run", "--state", folder / "relay", "--peers", file, "--listen", where]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fednode.cli", *map(str, words)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        await process.stdout.readline()
        try:
            yield Raised(at, process.pid, sites)
        finally:
            for site in sites:
                await site.links.close()
            process.kill()
            await process.wait()


def _site(number: int, at: RelayAt) -> Site:
    name, key = f"n{number}", Ed25519PrivateKey.generate()
    context = showing(key, mint(key, name, b"", time.time()))

    async def connect(endpoint: Endpoint) -> Streams:
        to, own = endpoint, f"127.1.{number // 250}.{number % 250 + 1}"
        return await asyncio.open_connection(to.host, to.port, limit=CHUNK, local_addr=(own, 0))

    links = Links([at], lambda: context, lambda der: judged(der, lambda _: "")[0], connect=connect)
    return Site(name, keys.node_id(key), key, links)


async def in_groups(work: list[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Do all of some work, AT_ONCE at a time; return the results in order."""
    done: list[Any] = []
    for at in range(0, len(work), AT_ONCE):
        done += await asyncio.gather(*(one() for one in work[at : at + AT_ONCE]))
    return done


async def waits(site: Site, answer: Callable[[Ends], Awaitable[None]]) -> None:
    """Let a node wait at its relay, and answer calls."""

    async def taken(ends: Ends, relay: str, caller: str) -> None:
        await answer(ends)

    site.links.wait(taken)
    await until_up(site.links)


async def until_up(links: Links) -> None:
    """Wait until a node waits at its relay."""
    async with asyncio.timeout(GUARD_S):
        while not links.links[0].up:
            await pause(PAUSE_S)


async def stays(ends: Ends) -> None:
    """Hold a stream, and read nothing of it."""
    await asyncio.Event().wait()


async def echoes(ends: Ends) -> None:
    """Send back what comes."""
    while data := await ends.reader.read(CHUNK):
        ends.writer.write(data)
        await ends.writer.drain()


async def memory(nodes: int, streams: int) -> list[dict[str, str | float]]:
    """Return what waiting nodes and idle streams take of a relay."""
    async with relay(nodes) as raised:
        warm, rest = raised.sites[:2], raised.sites[2:]
        for site in warm:
            await waits(site, stays)
        before = raised.kib
        await in_groups([lambda site=site: waits(site, stays) for site in rest])  # type: ignore[misc]
        await pause(1)
        waiting = raised.kib

        def dial(number: int, further: int) -> Callable[[], Coroutine[Any, Any, Any]]:
            to = raised.sites[(number + further) % nodes]
            return lambda: raised.sites[number].links.dial(to.id)

        held = await in_groups(
            [dial(number, 1 + one) for one in range(streams) for number in range(nodes)]
        )
        await pause(1)
        idle = raised.kib
        row: dict[str, str | float] = {
            "nodes": nodes,
            "streams": len(held),
            "a waiting node, KiB": (waiting - before) / len(rest),
            "an idle stream, KiB": (idle - waiting) / len(held),
            "the relay, MiB": raised.mib,
        }
        return [row]


async def unread(streams: int) -> list[dict[str, str | float]]:
    """Return what streams take that nobody reads, and what they do to a healthy one."""
    async with relay(streams + 2) as raised:
        *sites, far, near = raised.sites
        await in_groups([lambda site=site: waits(site, stays) for site in sites])  # type: ignore[misc]
        await waits(far, echoes)
        healthy, _ = await near.links.dial(far.id)
        before, alone = raised.kib, await trips(healthy)
        callers = [near.links.dial(site.id) for site in sites[:1]]
        held = [one for one, _ in await asyncio.gather(*callers)]
        held += [
            (await sites[number].links.dial(sites[number + 1].id))[0]
            for number in range(streams - 1)
        ]
        floods = [asyncio.ensure_future(flood(one)) for one in held]
        began = time.monotonic()
        highest, meanwhile = 0.0, list[float]()
        while not all(one.done() for one in floods) and time.monotonic() - began < WATCH_S:
            meanwhile += await trips(healthy, 10)
            highest = max(highest, raised.kib)
        gone = time.monotonic() - began
        left = sum(not one.done() for one in floods)
        for one in floods:
            one.cancel()
        row: dict[str, str | float] = {
            "streams": len(held),
            "more memory, MiB": (highest - before) / KIB,
            "gone after, s": gone if not left else float("inf"),
            "healthy alone, ms": 1e3 * statistics.median(alone),
            "meanwhile, ms": 1e3 * statistics.median(meanwhile),
            "ratio": statistics.median(meanwhile) / statistics.median(alone),
        }
        return [row]


async def trips(ends: Ends, count: int = TRIPS) -> list[float]:
    """Return how long round trips of 4 KiB through a stream last, in seconds."""
    sent, lasted = os.urandom(4 * KIB), list[float]()
    for _ in range(count):
        began = time.perf_counter()
        ends.writer.write(sent)
        left = len(sent)
        while left:
            left -= len(await ends.reader.read(left))
        lasted.append(time.perf_counter() - began)
    return lasted


async def flood(ends: Ends) -> None:
    """Write until the stream ends."""
    piece = bytes(CHUNK)
    ended = asyncio.ensure_future(ends.reader.read(1))
    try:
        with contextlib.suppress(OSError):
            while not ended.done():
                ends.writer.write(piece)
                drained = asyncio.ensure_future(ends.writer.drain())
                await asyncio.wait((ended, drained), return_when=asyncio.FIRST_COMPLETED)
                drained.cancel()
    finally:
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)


def main() -> None:
    """Measure one of the two, and publish it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("memory", "unread"))
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--streams", type=int)
    given = parser.parse_args()
    if given.what == "memory":
        rows = uvloop.run(memory(given.nodes, given.streams or 4))
    else:
        rows = uvloop.run(unread(given.streams or 32))
    publish(f"relay-{given.what}", f"a relay: {given.what}", rows)


if __name__ == "__main__":
    main()
