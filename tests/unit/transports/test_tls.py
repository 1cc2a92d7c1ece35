"""Mutual TLS: who is let in, who is refused, counted and named, and what it costs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from OpenSSL import SSL

from fednode.errors import Unreachable
from fednode.identity import keys
from fednode.identity.certificate import mint
from fednode.identity.lease import DAY_S
from fednode.transports import exits, paths, refusing, session
from fednode.transports import tls as module
from fednode.transports.base import Address
from fednode.transports.grpc import GrpcTransport
from fednode.transports.room import Room, source_of
from fednode.transports.session import Ends, Session, showing
from fednode.transports.tls import Tls
from fednode.wire.gen import exchange_pb2, exchange_pb2_grpc
from tests.unit.identity.people import (
    LISTED,
    STRANGER,
    A,
    B,
    Person,
    lease,
    person,
    revocation,
)

GUARD_S = 180.0


async def who(frame: bytes, caller: str) -> bytes:
    return caller.encode()


@pytest.fixture
async def a() -> AsyncIterator[tuple[Person, Address]]:
    one = person(A, "a")
    transport = one.transport()
    yield one, await transport.listen("127.0.0.1:0", who)
    await transport.close()


async def call(one: Person, to: Address, name: str = "a") -> bytes:
    transport = one.transport()
    try:
        return await transport.send(to, b"x", GUARD_S, name)
    finally:
        await transport.close()


async def refused(one: Person, to: Address) -> str:
    with pytest.raises(Unreachable) as fault:
        await call(one, to)
    return str(fault.value)


async def until_told(one: Person, times: int = 1) -> tuple[str, str, str]:
    async with asyncio.timeout(GUARD_S):
        while len(one.refused) < times:  # noqa: ASYNC110  the gate tells in its own task
            await asyncio.sleep(0)
    return one.refused[0]


async def test_both_ends_know_each_other_by_their_keys(a: tuple[Person, Address]) -> None:
    assert await call(person(B, "b"), a[1]) == LISTED["b"].encode()
    assert a[0].refused == []


async def test_a_lease_lets_an_unlisted_node_in(a: tuple[Person, Address]) -> None:
    proof = lease("n", STRANGER, issued=int(time.time()), expires=int(time.time()) + DAY_S)
    reply = await call(person(STRANGER, "n", proof=proof), a[1])
    assert reply == keys.node_id(STRANGER).encode()


async def test_a_stranger_is_refused_counted_and_named(a: tuple[Person, Address]) -> None:
    stranger = person(STRANGER, "b")
    text = await refused(stranger, a[1])
    assert "does not know this node's key" in text or "nobody answers" in text
    assert stranger.learned == []
    kind, id, sentence = await until_told(a[0])
    assert (kind, bool(id)) == ("certificate", True)
    assert keys.node_id(STRANGER) in sentence
    assert "no such id is in peers.yaml" in sentence


async def test_an_expired_certificate_is_refused_counted_and_named(
    a: tuple[Person, Address],
) -> None:
    await refused(person(B, "b", made_at=time.time() - 9 * DAY_S, days=4), a[1])
    kind, _, sentence = await until_told(a[0])
    assert kind == "certificate"
    assert LISTED["b"] in sentence
    assert "expired 120.0 hours ago" in sentence


async def test_a_revoked_key_is_refused_counted_and_named(a: tuple[Person, Address]) -> None:
    now = int(time.time())
    a[0].believes.take_revocation(revocation("b", B, issued=now))
    await refused(person(B, "b"), a[1])
    kind, _, sentence = await until_told(a[0])
    assert (kind, "revoked" in sentence, LISTED["b"] in sentence) == ("certificate", True, True)


async def until_refused(one: Person, to: Address, words: str) -> str:
    """Call until the refusal's reason came, which the end of the connection may overtake."""
    async with asyncio.timeout(GUARD_S):
        while words not in (text := await refused(one, to)):
            pass
    return text


async def test_a_caller_whose_key_was_revoked_learns_it_with_the_proof(
    a: tuple[Person, Address],
) -> None:
    proof = revocation("b", B, issued=int(time.time()))
    a[0].believes.take_revocation(proof)
    caller = person(B, "b")
    text = await until_refused(caller, a[1], "revoked")
    assert text == f"cannot send to {a[1]}: the mesh revoked this node's key: ask for a new link"
    assert set(caller.learned) == {proof}
    assert caller.believes.is_revoked(LISTED["b"])


async def test_a_false_word_of_a_revocation_is_not_believed(a: tuple[Person, Address]) -> None:
    false = revocation("b", B, signer=STRANGER, issued=int(time.time()))
    a[0].believes._revoked[LISTED["b"]] = false
    caller = person(B, "b")
    text = await until_refused(caller, a[1], "has no proof of it")
    assert "ask the founder why" in text
    assert not caller.believes.is_revoked(LISTED["b"])


async def test_a_caller_whose_lease_ended_learns_it(a: tuple[Person, Address]) -> None:
    now = int(time.time())
    proof = lease("n", STRANGER, issued=now - 2 * DAY_S, expires=now - DAY_S)
    await until_refused(person(STRANGER, "n", proof=proof), a[1], "lease has ended")


async def test_a_node_that_gives_no_reason_hangs_up_as_before() -> None:
    silent = person(A, "a", explains=False)
    transport = silent.transport()
    to = await transport.listen("127.0.0.1:0", who)
    text = await until_refused(person(STRANGER, "n"), to, "hung up right after")
    assert "revoked" not in text
    await transport.close()


@pytest.mark.parametrize(
    ("shift", "said"),
    [
        (10 * DAY_S, "its clock is 240 h behind this machine's"),
        (-9 * DAY_S, "its certificate is not valid yet: check the clocks of both nodes"),
    ],
)
async def test_a_caller_whose_clock_is_wrong_learns_it(
    a: tuple[Person, Address], monkeypatch: pytest.MonkeyPatch, shift: float, said: str
) -> None:
    caller = person(B, "b", made_at=time.time() + shift)
    caller.believes.clock = lambda: time.time() + shift
    there = partial(refusing.sentence, clock=caller.believes.clock)
    monkeypatch.setattr(exits, "sentence", there)
    a[0].believes.clock = time.time
    text = await until_refused(caller, a[1], said)
    assert "revoked" not in text


@pytest.mark.parametrize(
    "sent", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\0"]
)
async def test_plain_text_is_refused_counted_and_named(
    a: tuple[Person, Address], sent: bytes
) -> None:
    host, port = a[1].rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    async with asyncio.timeout(GUARD_S):
        assert await reader.read() == b""
    writer.close()
    kind, where, sentence = await until_told(a[0])
    assert (kind, where) == ("plain text", "127.0.0.1")
    assert "it speaks plain text" in sentence
    assert await call(person(B, "b"), a[1])


async def test_a_plain_client_of_ours_is_told_that_nobody_answers(
    a: tuple[Person, Address],
) -> None:
    plain = GrpcTransport()
    with pytest.raises(Unreachable):
        await plain.send(a[1], b"x", GUARD_S)
    await plain.close()
    assert (await until_told(a[0]))[0] == "plain text"


async def test_who_answers_in_anothers_place_is_not_spoken_to(a: tuple[Person, Address]) -> None:
    caller = person(B, "b")
    transport = caller.transport()
    with pytest.raises(Unreachable, match="it is 'a', not 'c'"):
        await transport.send(a[1], b"secret", GUARD_S, "c")
    await transport.close()
    assert caller.refused[0][0] == "certificate"


async def test_a_server_without_tls_is_named(a: tuple[Person, Address]) -> None:
    plain = GrpcTransport()
    address = await plain.listen("127.0.0.1:0", who)
    text = await refused(person(B, "b"), address)
    await plain.close()
    assert "TLS" in text


async def test_no_socket_of_the_inside_speaks_for_anybody(a: tuple[Person, Address]) -> None:
    """Who finds the way around TLS, on this machine as this user, is nobody."""
    import grpc

    transport = person(B, "b").transport()
    address = await transport.listen("127.0.0.1:0", who)
    inside = transport._tls.inside  # type: ignore[union-attr]
    channel = grpc.aio.insecure_channel(inside)
    with pytest.raises(grpc.aio.AioRpcError) as fault:
        await exchange_pb2_grpc.ExchangeStub(channel).Deliver(exchange_pb2.Frame(data=b"x"))
    assert fault.value.code() == grpc.StatusCode.UNAUTHENTICATED
    await channel.close()
    await transport.close()
    assert address


async def test_who_says_nothing_is_dropped_and_in_nobodys_way(
    a: tuple[Person, Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNPROVEN_MAX", 3)
    host, port = a[1].rsplit(":", 1)
    silent = [socket.create_connection((host, int(port))) for _ in range(6)]
    await until_told(a[0], times=3)
    assert {one[:2] for one in a[0].refused} == {("connections", "127.0.0.1")}
    assert await call(person(B, "b"), a[1])
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.05)
    late = socket.create_connection((host, int(port)))
    async with asyncio.timeout(GUARD_S):
        while a[0].refused[-1][0] != "handshake":  # noqa: ASYNC110
            await asyncio.sleep(0)
    for one in (*silent, late):
        one.close()


async def test_who_proves_its_key_and_says_nothing_is_dropped(
    a: tuple[Person, Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs no connection to gRPC, and its place is free again."""
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.5)
    one = person(B, "b")
    tls = Tls(lambda: shown_by(B), one.believes.judge, lambda *_: None)
    host, port = a[1].rsplit(":", 1)
    outside = Ends(*await asyncio.open_connection(host, int(port)))
    await Session(tls._context(), server=False).shake_hands(outside)
    assert (await until_told(a[0]))[0] == "handshake"
    assert "it said nothing within 0.5 s" in a[0].refused[0][2]
    assert await outside.reader.read() is not None
    outside.writer.close()
    await tls.close()


async def test_the_source_of_most_handshakes_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    room, ended = Room(), []

    async def hold(source: str) -> None:
        with room.place(source, 3):
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(source)

    tasks = []
    for source in ("flood", "one", "flood", "two", "flood", "three"):
        tasks.append(asyncio.create_task(hold(source)))
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert ended == ["flood", "flood", "one"]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert room._held == {}


def shown_by(key: Ed25519PrivateKey) -> tuple[Ed25519PrivateKey, x509.Certificate]:
    return key, mint(key, "a", b"", time.time())


def shaken(client: SSL.Context, server: SSL.Context) -> str:
    """Shake hands in memory; return the version of TLS that both ends agreed on."""
    ends = SSL.Connection(client, None), SSL.Connection(server, None)
    ends[0].set_connect_state()
    ends[1].set_accept_state()
    for _ in range(10):
        for one, other in (ends, ends[::-1]):
            with contextlib.suppress(SSL.WantReadError):
                one.do_handshake()
            with contextlib.suppress(SSL.WantReadError):
                other.bio_write(one.bio_read(1 << 16))
    return ends[0].get_protocol_version_name()


@pytest.mark.parametrize("caller", [True, False])
def test_no_older_tls_is_spoken(caller: bool) -> None:
    assert shaken(*(showing(*shown_by(key)) for key in (A, B))) == "TLSv1.3"
    contexts = [showing(*shown_by(key)) for key in (A, B)]
    older = contexts[0 if caller else 1]
    older.set_min_proto_version(SSL.TLS1_2_VERSION)
    older.set_max_proto_version(SSL.TLS1_2_VERSION)
    with pytest.raises(SSL.Error):
        shaken(*contexts)


async def test_connections_that_show_one_certificate_share_what_they_are_made_of() -> None:
    shown = shown_by(A)
    one = Tls(lambda: shown, lambda *_: ("", ""), lambda *_: None)
    before = one._context()
    assert one._context() is before
    shown = shown_by(A)
    assert one._context() is not before
    await one.close()


def test_a_source_is_what_one_caller_has_of_the_addresses() -> None:
    assert source_of("192.0.2.1") == source_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert source_of("2001:db8::1") == source_of("2001:db8::2") == "2001:db8::/64"
    assert source_of("?") == "?"


async def test_one_key_holds_so_many_connections_and_no_more(
    a: tuple[Person, Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PER_KEY_MAX", 1)
    first = person(B, "b").transport()
    await first.send(a[1], b"x", GUARD_S, "a")
    await refused(person(B, "b"), a[1])
    assert "holds 1 connections already" in (await until_told(a[0]))[2]
    await first.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="an option of Linux")
@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_both_ends_of_a_connection_drop_who_is_cut_off(
    make: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []

    def drop(writer: asyncio.StreamWriter) -> None:
        real(writer)
        own = writer.get_extra_info("socket")
        kept.append(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))

    async def speak() -> None:
        one = person(A, "a").transport()
        try:
            await call(person(B, "b"), await one.listen("127.0.0.1:0", who))
        finally:
            await one.close()

    real = session.drop_unheard
    for one in (module, paths):
        monkeypatch.setattr(one, "drop_unheard", drop)
    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(speak())
    assert kept == [session.UNHEARD_MS] * 2


async def test_what_was_wrong_before_is_not_said_of_one_that_answers(
    a: tuple[Person, Address],
) -> None:
    caller = person(B, "b").transport()
    _, to = a
    channel = await caller.channel(to, "a")
    await channel.channel_ready()
    await channel.close()  # this end hung up before it asked anything
    assert await caller.send(to, b"x", GUARD_S, "a")
    assert caller.why(to, "a") == ""
    await caller.close()
