"""Connections that come in: how many, for how long, and how many bytes nobody asked for."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fednode.transports import connection_limiter as module
from fednode.transports.connection_limiter import Account, ConnectionLimiter
from tests.contract.transport_suite import GUARD_S, Stuck
from tests.meshes import Mesh

HERE, THERE = "127.0.0.2", "127.0.0.3"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Close no connection because it names no key."""
    monkeypatch.setattr(module, "UNKNOWN_S", 1e6)


class Core:
    """Stands for gRPC's socket: it takes bytes and says nothing."""

    def __init__(self) -> None:
        self.bytes, self.changed = 0, asyncio.Event()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            while data := await reader.read(1 << 16):
                self.bytes += len(data)
                self.changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(GUARD_S):
            while self.bytes < count:
                self.changed.clear()
                await self.changed.wait()


class Doors:
    """A limiter before a core, and connections to it."""

    def __init__(self, limiter: ConnectionLimiter, core: Core, port: int) -> None:
        self.limiter, self.core, self.port = limiter, core, port
        self.writers: list[asyncio.StreamWriter] = []

    async def enter(self, source: str = HERE) -> asyncio.StreamReader:
        """Open a connection and send a byte; return what reads from it."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(source, 0)
        )
        self.writers.append(writer)
        before = self.core.bytes
        writer.write(b"x")
        gone = asyncio.ensure_future(reader.read(1))
        come = asyncio.ensure_future(self.core.until(before + 1))
        await asyncio.wait((gone, come), return_when=asyncio.FIRST_COMPLETED)
        come.cancel()
        if not gone.done():
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
        return reader

    def peers(self) -> list[str]:
        """Return the connections that are open, by the names that gRPC has for them."""
        return list(self.limiter._lines)


@contextlib.asynccontextmanager
async def doors(folder: Path, most: int = 16) -> AsyncIterator[Doors]:
    core, limiter = Core(), ConnectionLimiter(folder, 1 << 20, most)
    server = await asyncio.start_unix_server(core.take, limiter.core)
    opened = Doors(limiter, core, await limiter.listen(host="127.0.0.1", port=0))
    try:
        yield opened
    finally:
        for writer in opened.writers:
            writer.close()
        limiter.close()
        server.close()


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Doors]:
    async with doors(tmp_path) as opened:
        yield opened


async def closed(reader: asyncio.StreamReader) -> bool:
    """Tell whether a connection ends."""
    async with asyncio.timeout(GUARD_S):
        with contextlib.suppress(ConnectionError):
            return await reader.read(1) == b""
    return True


def test_what_no_call_explains_drains_steadily() -> None:
    account = Account(room=100, leak_s=10, call_room=50, calls_s=1.0, at=0.0)
    assert account.add(100, 0.0) <= 0
    assert account.add(40, 0.0) == 40
    assert account.add(0, 4.0) <= 0
    assert account.add(-100, 4.0) <= 0
    assert account.level == 0.0


def test_a_call_that_is_read_makes_room() -> None:
    account = Account(room=100, leak_s=10, call_room=50, calls_s=1.0, at=0.0)
    account.reading = 2
    assert account.add(100 + module.WINDOW + 2 * 50, 0.0) <= 0
    account.reading = 0
    assert account.add(0, 0.0) == module.WINDOW + 2 * 50


def test_calls_are_bounded_in_a_second_and_at_once() -> None:
    account = Account(room=100, leak_s=10, call_room=50, calls_s=2.0, at=0.0)
    for _ in range(int(2 * module.BURST_S)):
        assert account.add(0, 0.0, calls=1) <= 0
    assert account.add(0, 0.0, calls=1) > 0
    assert account.add(0, 0.5) <= 0


async def test_an_account_is_forgotten_once_it_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ACCOUNTS_MAX", 3)
    limiter = module.ConnectionLimiter(tmp_path, 1 << 20)
    for number in range(9):
        limiter._account(f"source {number}", module.SOURCE_ROOM, module.SOURCE_LEAK_S)
    assert len(limiter._accounts) <= 3
    owing = limiter._account("owing", module.ROOM, module.LEAK_S)
    owing.add(module.ROOM, asyncio.get_running_loop().time())
    for number in range(9):
        limiter._account(f"key {number}", module.ROOM, module.LEAK_S)
    assert limiter._accounts["owing"] is owing


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (("192.0.2.7", 4711), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 4711, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 4711, 0, 2), "fe80::/64"),
        ("/tmp/x/7.0123456789abcdef", "relay.0123456789abcdef"),
    ],
)
def test_sources_are_addresses_networks_and_callers_of_relays(name: object, source: str) -> None:
    assert module._source(name) == source


async def test_a_source_without_a_key_holds_few(
    opened: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNKNOWN_PER_SOURCE", 2)
    for _ in range(2):
        await opened.enter()
    assert await closed(await opened.enter())
    await opened.enter(THERE)
    assert len(opened.peers()) == 3


async def test_a_key_holds_few(opened: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PER_KEY", 1)
    readers = [await opened.enter() for _ in range(2)]
    first, second = opened.peers()
    assert opened.limiter.calls(first, "key")
    assert not opened.limiter.calls(second, "key")
    assert await closed(readers[1])
    assert opened.limiter.calls(first, "key")


async def test_connections_of_a_source_cost_it_bytes(
    opened: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SOURCE_ROOM", 2 * module.DOOR_BYTES)
    monkeypatch.setattr(module, "SOURCE_LEAK_S", 1)
    await opened.enter()
    await opened.enter()
    assert await closed(await opened.enter())


async def test_who_names_no_key_is_closed_in_the_end(
    opened: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNKNOWN_S", 0.0)
    assert await closed(await opened.enter())


async def test_of_too_many_the_source_with_most_loses_one(tmp_path: Path) -> None:
    async with doors(tmp_path, most=3) as opened:
        alone = await opened.enter(THERE)
        crowd = [await opened.enter() for _ in range(2)]
        await opened.enter()
        assert await closed(crowd[0])
        assert THERE in {opened.limiter.source(peer) for peer in opened.peers()}
        assert not alone.at_eof()


async def test_sockets_that_a_cleaner_took_are_named_once(
    opened: Doors, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.unlink(opened.limiter.core)
    for _ in range(2):
        assert await closed(await opened.enter())
    assert caplog.text.count(f"The sockets of this node in {tmp_path} are gone") == 1


async def test_who_sends_a_first_byte_while_a_node_stops_is_no_fault(
    opened: Doors, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", opened.port)
    await opened.enter()  # the limiter has taken the connection before this one, too
    opened.limiter.stop_accepting()
    os.unlink(opened.limiter.core)  # as gRPC does when its server stops
    writer.write(b"x")
    async with asyncio.timeout(GUARD_S):
        assert await reader.read() == b""
    writer.close()
    assert not caplog.records


async def test_a_banned_key_is_cut_off_and_comes_back(
    opened: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = await opened.enter()
    assert opened.limiter.calls(opened.peers()[0], "key")
    opened.limiter.ban("key", 1e6)
    assert await closed(reader)
    reader = await opened.enter()
    assert not opened.limiter.calls(opened.peers()[-1], "key")
    assert await closed(reader)
    opened.limiter.ban("key", -1.0)
    await opened.enter()
    assert opened.limiter.calls(opened.peers()[-1], "key")


async def test_a_stranger_sends_a_handshake_and_no_more(
    opened: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNKNOWN_BYTES", 1000)
    await opened.enter()
    opened.writers[0].write(bytes(2000))
    await opened.core.until(2001)
    line = next(iter(opened.limiter._all))
    assert not line.transport.is_reading()
    assert opened.limiter.calls(opened.peers()[0], "key")
    assert line.transport.is_reading()


async def test_bytes_that_no_call_explains_stop_the_reading_until_they_are_explained(
    opened: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAK_S", 1)
    await opened.enter()
    (peer,), (line,) = opened.peers(), opened.limiter._all
    assert opened.limiter.calls(peer, "key")
    opened.writers[0].write(bytes(module.ROOM + 1))
    await opened.core.until(module.ROOM + 2)
    assert not line.transport.is_reading()
    opened.limiter.explains(peer, module.ROOM)
    assert line.transport.is_reading()


async def test_too_many_calls_stop_the_reading(
    opened: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BURST_S", 0.01)
    await opened.enter()
    (peer,), (line,) = opened.peers(), opened.limiter._all
    assert opened.limiter.calls(peer, "key")
    assert line.transport.is_reading()
    for _ in range(2000):
        opened.limiter.calls(peer, "key")
    assert not line.transport.is_reading()


async def test_a_call_that_is_given_up_leaves_no_room_behind(mesh: Mesh) -> None:
    stuck = Stuck()
    server, sender = mesh.transport("v"), mesh.transport("a")
    to = await server.listen("127.0.0.1:0", stuck)
    for size in (10, 1 << 20):
        call = asyncio.ensure_future(sender.send(to, bytes(size), GUARD_S, "v"))
        await stuck.taken.wait()
        stuck.taken.clear()
        call.cancel()
        await stuck.cancelled.wait()
        stuck.cancelled.clear()
    limiter = server._limits.connections
    assert limiter is not None
    assert not any(one.reading for one in limiter._accounts.values())
