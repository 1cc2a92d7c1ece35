"""A key that floods, is turned away, or leaves calls unfinished loses its connections."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from fednode.errors import Unreachable
from fednode.identity import keys
from fednode.transports import line as line_module
from fednode.transports import meter
from fednode.transports.base import Address
from fednode.transports.grpc import GrpcTransport
from fednode.transports.meter import Rates
from tests.e2e.attacks.answering import answering_context
from tests.e2e.attacks.http2 import (
    ALPN,
    CONTINUATION,
    DATA,
    END_HEADERS,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    WINDOW_BYTES,
    Wire,
    context_of,
    frame,
    request,
)
from tests.e2e.attacks.unfinished import surplus, unfinished, unfinished_pieces
from tests.unit.identity.people import A, B, Person, person
from tests.unit.transports.test_tls import shown_by

GUARD_S = 180.0
DELIVER = "/fednode.v1.Exchange/Deliver"
BEGIN = PREFACE + frame(SETTINGS)
FEW = Rates(calls=1.0, frames=10.0, records=1e6)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def who(frame: bytes, caller: str) -> bytes:
    return b"here"


@pytest.fixture
async def a() -> AsyncIterator[tuple[Person, GrpcTransport, Address]]:
    one = person(A, "a")
    transport = one.transport()
    yield one, transport, await transport.listen("127.0.0.1:0", who)
    await transport.close()


async def raw(to: Address, alpn: tuple[str, ...] = ALPN) -> Streams:
    """Connect with the key of b, by hand."""
    host, port = to.rsplit(":", 1)
    context = context_of(*shown_by(B), alpn=alpn)
    return await asyncio.open_connection(host, int(port), ssl=context)


async def to_the_end(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(GUARD_S):
        try:
            while await reader.read(1 << 16):
                pass
        except (ConnectionError, ssl.SSLError):
            pass


async def kinds(one: Person, kind: str) -> str:
    """Wait until a refusal of this kind is told; return its sentence."""
    async with asyncio.timeout(GUARD_S):
        while not any(what == kind for what, *_ in one.refused):  # noqa: ASYNC110
            await asyncio.sleep(0)
    return next(text for what, _, text in one.refused if what == kind)


async def refused(to: Address) -> None:
    transport = person(B, "b").transport()
    with pytest.raises(Unreachable):
        await transport.send(to, b"x", GUARD_S, "a")
    await transport.close()


@pytest.mark.parametrize(
    "said",
    [
        frame(PING, payload=bytes(8)),
        frame(SETTINGS, payload=struct.pack(">HI", 4, 70_000)),
        frame(0xFA),
    ],
)
async def test_a_key_that_floods_loses_its_connections_and_rests(
    a: tuple[Person, GrpcTransport, Address], monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    one, transport, at = a
    monkeypatch.setattr(meter, "OVER_S", 0.05)
    transport._tls._lines._meter.rates = FEW  # type: ignore[union-attr]
    idle, flooding = await raw(at), await raw(at)
    idle[1].write(BEGIN)
    flooding[1].write(BEGIN + said * 2000)
    await to_the_end(flooding[0])
    await to_the_end(idle[0])
    assert "keeps sending more calls, frames or records" in await kinds(one, "flood")
    await refused(at)
    assert "refused for" in await kinds(one, "connections")
    for _, writer in (idle, flooding):
        writer.close()


async def test_header_blocks_without_end_are_a_flood(
    a: tuple[Person, GrpcTransport, Address],
) -> None:
    one, _, at = a
    reader, writer = await raw(at)
    more = frame(CONTINUATION, 0, 1, bytes(16_000))
    writer.write(BEGIN + frame(HEADERS, 0, 1, request(DELIVER)) + more * 4)
    await to_the_end(reader)
    assert "header block" in await kinds(one, "flood")
    writer.close()


async def test_calls_that_stay_unfinished_cost_their_connection(
    a: tuple[Person, GrpcTransport, Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_module, "CALL_S", 0.0)
    tls = a[1]._tls
    assert tls is not None
    reader, writer = await raw(a[2])
    writer.write(BEGIN + frame(HEADERS, END_HEADERS, 1, request(DELIVER)))
    writer.write(frame(DATA, 0, 1, b"\0\0\1\0\0"))
    tls._lines.sweep()
    await to_the_end(reader)
    writer.close()
    other = person(B, "b").transport()
    assert await other.send(a[2], b"x", GUARD_S, "a") == b"here"
    await other.close()


@pytest.mark.parametrize("attack", [unfinished, surplus, unfinished_pieces])
async def test_an_attack_with_calls_that_never_end_is_not_closed_for_its_manners(
    a: tuple[Person, GrpcTransport, Address], attack: Callable[[Wire], Iterator[int]]
) -> None:
    """The programs of tests/e2e/attacks fill windows, and gRPC takes their frames."""

    def stuff() -> int:
        wire, moved = Wire(a[2], context_of(*shown_by(B))), 0
        wire.begin()
        for more in attack(wire):
            moved += more
            if moved > 4 * WINDOW_BYTES:
                break
        wire.close()
        return moved

    async with asyncio.timeout(GUARD_S):
        assert await asyncio.to_thread(stuff) > 4 * WINDOW_BYTES


async def test_who_is_turned_away_loses_connections_of_both_directions(
    a: tuple[Person, GrpcTransport, Address],
) -> None:
    other = person(B, "b").transport()
    there = await other.listen("127.0.0.1:0", who)
    assert await other.send(a[2], b"x", GUARD_S, "a") == b"here"
    assert await a[1].send(there, b"x", GUARD_S, "b") == b"here"
    a[1].turn_away(keys.node_id(B), math.inf)
    with pytest.raises(Unreachable):
        await other.send(a[2], b"x", GUARD_S, "a")
    with pytest.raises(Unreachable):
        await a[1].send(there, b"x", GUARD_S, "b")
    await other.close()


async def test_who_floods_as_it_answers_is_refused_too(
    a: tuple[Person, GrpcTransport, Address],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member may wait for this node's calls and flood where it answers."""
    one, transport, _ = a
    monkeypatch.setattr(meter, "OVER_S", 0.05)
    transport._tls._lines._meter.rates = FEW  # type: ignore[union-attr]
    hung_up = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(SETTINGS) + frame(PING, payload=bytes(8)) * 2000)
        await to_the_end(reader)
        writer.close()
        hung_up.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=answering_context(*shown_by(B)))
    there = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(Unreachable):
        await transport.send(there, b"x", GUARD_S, "b")
    assert "keeps sending more" in await kinds(one, "flood")
    async with asyncio.timeout(GUARD_S):
        await hung_up.wait()
    server.close()


@pytest.mark.parametrize("alpn", [(), ("http/1.1",)])
async def test_who_does_not_speak_http2_is_refused(
    a: tuple[Person, GrpcTransport, Address], alpn: tuple[str, ...]
) -> None:
    reader, writer = await raw(a[2], alpn)
    writer.write(BEGIN)
    await to_the_end(reader)
    assert "ALPN h2" in await kinds(a[0], "handshake")
    writer.close()


async def test_a_ticket_opens_nothing(a: tuple[Person, GrpcTransport, Address]) -> None:
    """OpenSSL sends tickets that pyOpenSSL cannot turn off; each connection shows its key anew."""
    host, port = a[2].rsplit(":", 1)
    context = context_of(*shown_by(B))

    def again() -> tuple[bool, bool]:
        with socket.create_connection((host, int(port)), GUARD_S) as plain:
            first = context.wrap_socket(plain)
            first.sendall(BEGIN)
            first.recv(1)
            session = first.session
            first.close()
        with socket.create_connection((host, int(port)), GUARD_S) as plain:
            second = context.wrap_socket(plain, session=session)
            second.sendall(BEGIN)
            found = bool(second.session_reused), bool(second.recv(1))
            second.close()
        return found

    assert await asyncio.to_thread(again) == (False, True)
