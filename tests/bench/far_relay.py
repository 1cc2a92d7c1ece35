"""Time an echo through a relay that is far from both nodes, beside a direct one of the same way.

    python -m tests.bench.far_relay [--ms 20] [--tries 9]

Each node is so many milliseconds away from the relay, and the direct way between the nodes is
twice as long. A forwarder in this process holds the bytes back. It takes connections at once, which
is hard on the relay: on a real network a connection costs the direct call a round trip, too.
Printed and kept under runs/bench.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

import uvloop

from fednode.identity.certificate import mint
from fednode.identity.trust import Trust
from fednode.transports.address import Endpoint, parse
from fednode.transports.grpc import GrpcTransport
from fednode.transports.opening import Streams, open_directly
from fednode.transports.session import CHUNK
from fednode.transports.tls import Tls
from fednode.transports.ways import Ways
from tests.bench.figures import publish
from tests.bench.relays import HOST, KIB, Site, relay, until_up
from tests.contract.faults import pause

CALL_S: Final = 20.0


@contextlib.asynccontextmanager
async def delayed(to: Callable[[], Endpoint], seconds: float) -> AsyncIterator[Endpoint]:
    """Give the address of a forwarder that holds the bytes of both ways back for some time."""
    tasks = set[asyncio.Task[None]]()

    async def held(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)

        async def out() -> None:
            while True:
                due, data = await queue.get()
                await pause(due - time.monotonic())
                if not data:
                    return
                writer.write(data)

        late = asyncio.ensure_future(out())
        try:
            data = b"-"
            while data:
                data = await reader.read(CHUNK)
                await queue.put((time.monotonic() + seconds, data))
            await late
        finally:
            late.cancel()
            writer.close()

    async def enter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        onward = await open_directly(to())
        try:
            with contextlib.suppress(OSError):
                await asyncio.gather(held(reader, onward[1]), held(onward[0], writer))
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(enter, HOST, 0)
    try:
        yield Endpoint(HOST, server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def distance(milliseconds: float, tries: int) -> list[dict[str, str | float]]:
    """Return how long first and later calls last, direct and through a relay in the middle."""
    place = list[Endpoint]()
    far = milliseconds / 1e3
    async with (
        delayed(lambda: place[0], far) as forwarder,
        relay(2) as raised,
    ):
        place.append(parse(raised.at.address))
        ids = {site.name: site.id for site in raised.sites}
        trust = Trust(mesh="bench", listed=ids)

        async def connect(endpoint: Endpoint) -> Streams:
            return await open_directly(forwarder)

        relayed = Ways(
            relays=(raised.at,),
            reach="relay",
            id_of=lambda _, who: trust.id_of(who),
            connect=connect,
        )
        called, caller = raised.sites
        (end, tls), (plain, _) = node(called, trust, relayed), node(called, trust, Ways())
        await end.listen("relay", answer)
        assert tls.links is not None
        await until_up(tls.links)
        opened = parse(await plain.listen(f"{HOST}:0", answer))
        async with delayed(lambda: opened, 2 * far) as middle:
            rows = [
                await calls("direct", caller, trust, Ways(), str(middle), called.name, tries),
                await calls("relayed", caller, trust, relayed, "relay", called.name, tries),
            ]
        await end.close()
        await plain.close()
    direct, through = rows
    ratio = {key: float(through[key]) / float(direct[key]) for key in ("first, ms", "later, ms")}
    return [*rows, {"way": "ratio", **ratio}]


async def calls(
    way: str, site: Site, trust: Trust, ways: Ways, to: str, who: str, tries: int
) -> dict[str, str | float]:
    """Return the medians of the first call and of later ones of fresh transports."""
    first, later = list[float](), list[float]()
    for _ in range(tries):
        end, _ = node(site, trust, ways)
        for number in range(4):
            began = time.perf_counter()
            await end.send(to, bytes(4 * KIB), CALL_S, who)
            (later if number else first).append(1e3 * (time.perf_counter() - began))
        await end.close()
    return {
        "way": way,
        "first, ms": statistics.median(first),
        "later, ms": statistics.median(later),
    }


def node(site: Site, trust: Trust, ways: Ways) -> tuple[GrpcTransport, Tls]:
    """Return the transport of a node, and its gate."""
    shown = site.key, mint(site.key, site.name, b"", time.time())
    tls = Tls(lambda: shown, trust.judge, lambda *_: None, ways=ways)
    return GrpcTransport(tls), tls


async def answer(frame: bytes, caller: str) -> bytes:
    """Answer at once."""
    return b"ok"


def main() -> None:
    """Measure, and publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ms", type=float, default=20)
    parser.add_argument("--tries", type=int, default=9)
    given = parser.parse_args()
    rows = uvloop.run(distance(given.ms, given.tries))
    title = f"an echo of 4 KiB, each node {given.ms:g} ms from the relay"
    publish("relay-distance", title, rows)


if __name__ == "__main__":
    main()
