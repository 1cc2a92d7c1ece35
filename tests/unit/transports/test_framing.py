"""Count what a frame costs on the wire through a proxy, and hold wire_bytes to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from fednode.transports.framing import wire_bytes
from fednode.transports.grpc import GrpcTransport

GUARD_S = 180.0
CALLS = 8


class Proxy:
    """Pass bytes on between a port of its own and another one, and count them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._pumps: list[asyncio.Task[None]] = []
        self.address = ""
        self.there = self.back = 0

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def _connected(
        self, near_reader: asyncio.StreamReader, near_writer: asyncio.StreamWriter
    ) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)

        async def pump(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: bool
        ) -> None:
            while data := await reader.read(1 << 16):
                self.there += len(data) if there else 0
                self.back += 0 if there else len(data)
                writer.write(data)
                with contextlib.suppress(ConnectionError):  # the other end may have gone already
                    await writer.drain()
            writer.close()

        self._pumps += [
            asyncio.create_task(pump(near_reader, far_writer, True)),
            asyncio.create_task(pump(far_reader, near_writer, False)),
        ]

    async def ended(self) -> None:
        await asyncio.gather(*self._pumps)


@pytest.fixture
async def route() -> AsyncIterator[tuple[GrpcTransport, Proxy]]:
    """Yield a sender, and a proxy in front of a receiver that answers with 100 bytes."""
    receiver, sender = GrpcTransport(), GrpcTransport()

    async def on_frame(frame: bytes, caller: str = "") -> bytes:
        return bytes(100)

    address = await receiver.listen("127.0.0.1:0", on_frame)
    proxy = Proxy(int(address.rpartition(":")[2]))
    server = await proxy.start()
    yield sender, proxy
    await sender.close()
    await receiver.close()
    await proxy.ended()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("size", [0, 150, 8_300, 100_000, 1 << 20, 3 << 20])
async def test_the_estimate_is_near_the_count(
    route: tuple[GrpcTransport, Proxy], size: int
) -> None:
    sender, proxy = route
    # The first calls open the connection and fill its compression tables.
    for _ in range(3):
        await sender.send(proxy.address, bytes(size), GUARD_S)
    there, back = proxy.there, proxy.back
    for _ in range(CALLS):
        await sender.send(proxy.address, bytes(size), GUARD_S)
    # Flow control and the odd ping come on top.
    slack = 100 + size // 100
    assert abs((proxy.there - there) / CALLS - wire_bytes(size)) < slack
    assert abs((proxy.back - back) / CALLS - wire_bytes(100)) < slack


def test_the_estimate_grows_with_the_frame_and_its_pieces() -> None:
    assert wire_bytes(0) < wire_bytes(1) < wire_bytes(2)
    piece = wire_bytes(1 << 20)
    assert wire_bytes(2 << 20) - piece == piece - wire_bytes(0) + 14
