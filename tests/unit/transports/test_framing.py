"""Count what a frame costs on the wire through a proxy, and hold wire_bytes to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from fednode.transports.framing import wire_bytes
from fednode.transports.grpc import GrpcTransport

GUARD_S = 180.0
CALLS = 8
Route = tuple[GrpcTransport, str, Counter[str]]


@pytest.fixture
async def route() -> AsyncIterator[Route]:
    """Yield a sender, the address of a proxy, and the bytes that went through the proxy.

    Behind the proxy is a receiver that answers with 100 bytes.
    """
    receiver, sender, count = GrpcTransport(), GrpcTransport(), Counter[str]()

    async def on_frame(frame: bytes, caller: str = "") -> bytes:
        return bytes(100)

    async def pump(way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            count[way] += len(data)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connected(near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        far, to_far = await asyncio.open_connection(*address.split(":"))
        ways = pump("there", near, to_far), pump("back", far, to_near)
        await asyncio.gather(*ways, return_exceptions=True)  # one end may have gone already

    address = await receiver.listen("127.0.0.1:0", on_frame)
    async with await asyncio.start_server(connected, "127.0.0.1", 0) as proxy:
        yield sender, f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}", count
        await asyncio.gather(sender.close(), receiver.close())


@pytest.mark.parametrize("size", [0, 150, 8_300, 100_000, 1 << 20, 3 << 20])
async def test_the_estimate_is_near_the_count(route: Route, size: int) -> None:
    sender, proxy, count = route
    # The first calls open the connection and fill its compression tables.
    for _ in range(3):
        await sender.send(proxy, bytes(size), GUARD_S)
    before = count.copy()
    for _ in range(CALLS):
        await sender.send(proxy, bytes(size), GUARD_S)
    # Flow control and the odd ping come on top.
    slack = 100 + size // 100
    for way, bytes_ in (("there", wire_bytes(size)), ("back", wire_bytes(100))):
        assert abs((count[way] - before[way]) / CALLS - bytes_) < slack


def test_the_estimate_grows_with_the_frame_and_its_pieces() -> None:
    assert wire_bytes(0) < wire_bytes(1) < wire_bytes(2)
    piece = wire_bytes(1 << 20)
    assert wire_bytes(2 << 20) - piece == piece - wire_bytes(0) + 14
