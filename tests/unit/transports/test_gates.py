"""Where a node takes connections: at one address, and for a while after a move at two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fednode.errors import AddressError
from fednode.transports import gates
from fednode.transports.address import Endpoint
from fednode.transports.gates import Gates, check_free
from tests.contract.faults import pause

GUARD_S = 180.0


async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"here")
    await writer.drain()
    writer.close()


@pytest.fixture
async def doors() -> AsyncIterator[Gates]:
    made = Gates(serve, 1 << 16)
    yield made
    made.close()
    made.close()  # idempotent


async def answers(endpoint: Endpoint) -> bool:
    try:
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    except ConnectionRefusedError:
        return False
    found = await reader.read(4)
    writer.close()
    return found == b"here"


async def until_shut(endpoint: Endpoint) -> None:
    async with asyncio.timeout(GUARD_S):
        while await answers(endpoint):
            await pause(0.01)


async def opened(doors: Gates, host: str) -> Endpoint:
    return Endpoint(host, await doors.open(Endpoint(host, 0)))


async def test_an_address_is_left_after_a_while_and_at_once_at_the_end(
    doors: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "MOVE_GRACE_S", 0.05)
    first, second = await opened(doors, "127.0.0.1"), await opened(doors, "127.0.0.2")
    doors.leave(first)
    assert await answers(first)
    await until_shut(first)
    assert await answers(second)
    doors.close()
    assert not await answers(second)


async def test_who_moves_back_keeps_the_address(
    doors: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "MOVE_GRACE_S", 0.02)
    first, second = await opened(doors, "127.0.0.1"), await opened(doors, "127.0.0.2")
    doors.leave(first)
    assert await doors.open(first) == first.port
    doors.leave(second)
    await until_shut(second)
    assert await answers(first)


async def test_a_node_at_relays_has_no_address_to_leave(doors: Gates) -> None:
    doors.leave(Endpoint("", 0, relayed=True))
    assert not doors._leaving


async def test_what_cannot_be_opened_says_why(doors: Gates) -> None:
    first = await opened(doors, "127.0.0.1")
    with pytest.raises(AddressError, match=r"cannot listen on .*choose another"):
        await doors.open(first)
    with pytest.raises(AddressError, match=f"the port {first.port} is in use"):
        check_free(first)
