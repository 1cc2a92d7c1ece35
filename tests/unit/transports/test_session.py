"""A TLS session carries bytes of any length both ways, unchanged and in order."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.identity.certificate import mint
from fednode.transports.session import CHUNK, RECORD, SEALED, Ends, Session
from fednode.transports.tls import Tls
from tests.unit.identity.people import A, B, person

GUARD_S = 20.0
SIZES = (1, RECORD - 1, RECORD, RECORD + 1, CHUNK, SEALED - 110, SEALED, 5 * CHUNK + 3)


async def connected() -> tuple[Ends, Ends]:
    """Return the two ends of a connection, as the gate and the exit open them."""
    one, other = socket.socketpair()
    return (
        Ends(*await asyncio.open_connection(sock=one, limit=CHUNK)),
        Ends(*await asyncio.open_connection(sock=other, limit=CHUNK)),
    )


def gate(key: Ed25519PrivateKey, name: str) -> Tls:
    """Return a gate that shows a certificate of a key."""
    shown = key, mint(key, name, b"", time.time())
    return Tls(lambda: shown, person(key, name).believes.judge, lambda *_: None)


@pytest.mark.parametrize("size", SIZES)
async def test_bytes_come_out_as_they_went_in(size: int) -> None:
    gates = [gate(A, "a"), gate(B, "b")]
    client, server = (Session(one._context(), one is gates[1]) for one in gates)
    (client_outside, server_outside), (ours, client_inside), (theirs, server_inside) = [
        await connected() for _ in range(3)
    ]
    async with asyncio.timeout(GUARD_S):
        await asyncio.gather(client.shake_hands(client_outside), server.shake_hands(server_outside))
        carrying = asyncio.gather(
            client.carry(client_outside, client_inside), server.carry(server_outside, server_inside)
        )
        there, back = (bytes(range(256)) * (1 + size // 256))[:size], b"\xff" * size
        ours.writer.write(there)
        theirs.writer.write(back)
        assert await theirs.reader.readexactly(size) == there
        assert await ours.reader.readexactly(size) == back
        ours.writer.close()
        client_outside.writer.close()
        assert all(await carrying)
    for ends in (server_outside, theirs, client_inside, server_inside):
        ends.writer.close()
    for one in gates:
        await one.close()
