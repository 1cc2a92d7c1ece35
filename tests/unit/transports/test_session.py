"""A TLS session carries bytes of any length both ways, unchanged and in order."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.identity.certificate import mint
from fednode.transports.line import Line
from fednode.transports.meter import Account
from fednode.transports.session import (
    CHUNK,
    HANDSHAKE_READS_MAX,
    RECORD,
    SEALED,
    Ends,
    PeerRejected,
    Session,
)
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


async def exactly(ends: Ends, size: int) -> bytes:
    """Return so many bytes that came in."""
    found = b""
    while len(found) < size and (more := await ends.reader.read(size - len(found))):
        found += more
    return found


def gate(key: Ed25519PrivateKey, name: str) -> Tls:
    """Return a gate that shows a certificate of a key."""
    shown = key, mint(key, name, b"", time.time())
    return Tls(lambda: shown, person(key, name).believes.judge, lambda *_: None)


def line(serving: bool) -> Line:
    return Line(Account(), time.monotonic, serving)


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
            client.carry(client_outside, client_inside, line(serving=False)),
            server.carry(server_outside, server_inside, line(serving=True)),
        )
        there, back = (bytes(range(256)) * (1 + size // 256))[:size], b"\xff" * size
        ours.writer.write(there)
        theirs.writer.write(back)
        assert await exactly(theirs, size) == there
        assert await exactly(ours, size) == back
        ours.writer.close()
        client_outside.writer.close()
        assert all(await carrying)
    for ends in (server_outside, theirs, client_inside, server_inside):
        ends.writer.close()
    for one in gates:
        await one.close()


class Chopped:
    """A reader of a TLS record that never ends, in pieces of one size."""

    def __init__(self, size: int) -> None:
        self.size, self.reads = size, 0

    async def read(self, most: int) -> bytes:
        at, self.reads = self.reads * self.size, self.reads + 1
        return b"\x16\x03\x01\x40\x00"[at : at + self.size].ljust(self.size, b"\0")


@pytest.mark.parametrize(("size", "most"), [(1, HANDSHAKE_READS_MAX), (2 * CHUNK, 0)])
async def test_a_handshake_has_few_pieces_and_few_bytes(size: int, most: int) -> None:
    one, ends = gate(A, "a"), await connected()
    reader = Chopped(size)
    session = Session(one._context(), server=True)
    with pytest.raises(PeerRejected, match="too many bytes or pieces"):
        await session.shake_hands(Ends(reader, ends[0].writer))  # type: ignore[arg-type]
    assert reader.reads == most + 1
    for end in ends:
        end.writer.close()
    await one.close()
