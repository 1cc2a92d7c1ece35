"""The memory network's faults are exact. What it shares with gRPC is in tests/contract."""

from __future__ import annotations

import asyncio

import pytest

from fednode.errors import AddressError, Unreachable
from tests.contract import memory_transport as memory
from tests.contract.memory_transport import Hub, MemoryTransport

GUARD_S = 180.0


async def upper(frame: bytes, caller: str = "") -> bytes:
    return frame.upper()


async def test_a_cut_address_is_unreachable_until_it_is_mended() -> None:
    hub = Hub()
    address = await MemoryTransport(hub).listen("127.0.0.1:0", upper)
    sender = MemoryTransport(hub)
    hub.cut(address)
    with pytest.raises(Unreachable, match=f"nobody answers at {address}"):
        await sender.send(address, b"a", GUARD_S)
    assert hub.sent[address] == 0
    hub.mend(address)
    assert await sender.send(address, b"a", GUARD_S) == b"A"
    assert hub.sent[address] == 1


async def test_a_held_reply_waits_while_the_handler_has_the_frame() -> None:
    hub = Hub()
    taken = asyncio.Event()

    async def on_frame(frame: bytes, caller: str = "") -> bytes:
        taken.set()
        return frame

    address = await MemoryTransport(hub).listen("127.0.0.1:0", on_frame)
    sender = MemoryTransport(hub)
    hub.hold(address)
    call = asyncio.ensure_future(sender.send(address, b"a", GUARD_S))
    await taken.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not call.done()
    assert (hub.sent[address], hub.answered[address]) == (1, 0)
    hub.release(address)
    assert await call == b"a"
    assert hub.answered[address] == 1
    assert await sender.send(address, b"b", GUARD_S) == b"b"


async def test_a_reply_that_is_held_too_long_meets_the_deadline() -> None:
    hub = Hub()
    address = await MemoryTransport(hub).listen("127.0.0.1:0", upper)
    hub.hold(address)
    with pytest.raises(Unreachable, match="did not answer within 0 s"):
        await MemoryTransport(hub).send(address, b"a", 0.0)
    assert hub.answered[address] == 0


async def test_faults_undone_where_there_are_none_change_nothing() -> None:
    hub = Hub()
    address = await MemoryTransport(hub).listen("127.0.0.1:0", upper)
    hub.mend(address)
    hub.release(address)
    assert await MemoryTransport(hub).send(address, b"a", GUARD_S) == b"A"


async def test_hubs_are_apart() -> None:
    address = await MemoryTransport(Hub()).listen("127.0.0.1:7", upper)
    with pytest.raises(Unreachable):
        await MemoryTransport(Hub()).send(address, b"a", GUARD_S)


async def test_a_hub_runs_out_of_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FIRST_PORT", 65535)
    hub = Hub()
    assert await MemoryTransport(hub).listen("[::1]:0", upper) == "[::1]:65535"
    with pytest.raises(AddressError, match="no port left"):
        await MemoryTransport(hub).listen("[::1]:0", upper)
