"""Connections with relays: who is no relay, or another one, is named and not used."""

from __future__ import annotations

import asyncio
import socket

import pytest

from fednode.transports.links import NoPath
from fednode.transports.opening import RelayAt
from tests.unit.transports.relays import NAMES, links_of, raised


async def test_a_relay_with_another_key_is_named_and_not_used() -> None:
    async with raised() as relay:
        links = links_of("n1", RelayAt(relay.at.address, NAMES["n38"]))
        with pytest.raises(NoPath, match=r"shows the key .* ask IT to exempt 127\.0\.0\.1"):
            await links.dial(NAMES["n2"])


async def test_what_is_no_relay_is_said_to_be_none() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    where = RelayAt(f"127.0.0.1:{server.getsockname()[1]}", NAMES["n38"])
    links = links_of("n1", where)
    dialling = asyncio.ensure_future(links.dial(NAMES["n2"]))
    server.setblocking(False)
    taken, _ = await asyncio.get_running_loop().sock_accept(server)
    taken.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(NoPath, match="does not answer as a relay does"):
        await dialling
    taken.close()
    server.close()
    await links.close()
