"""Where a node takes connections, and whether a port is free."""

from __future__ import annotations

import asyncio

import pytest

from fednode.errors import AddressError
from fednode.transports.address import Endpoint
from fednode.transports.gates import check_free, open_gate


async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_what_cannot_be_opened_says_why() -> None:
    gate = await open_gate(Endpoint("127.0.0.1", 0), serve, 1 << 16)
    taken = Endpoint("127.0.0.1", gate.sockets[0].getsockname()[1])
    with pytest.raises(AddressError, match=r"cannot listen on .*choose another"):
        await open_gate(taken, serve, 1 << 16)
    with pytest.raises(AddressError, match=f"the port {taken.port} is in use"):
        check_free(taken)
    gate.close()
