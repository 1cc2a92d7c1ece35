"""A node's end of relays: it waits, is called, dials, and says what is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from unittest.mock import AsyncMock

import pytest

from fednode.errors import Unreachable
from fednode.transports import relay_client as module
from fednode.transports.address import RelayEntry
from fednode.transports.base import OnFrame
from fednode.transports.grpc import GrpcTransport
from fednode.transports.ports import free_ports
from fednode.transports.relay_client import RelayClient
from tests.contract.faults import pause
from tests.contract.transport_suite import GUARD_S, Stuck
from tests.meshes import Mesh, RunningRelay
from tests.unit.identity.people import invitation_key
from tests.unit.transports.test_callers import TOKEN, guest_of

ANY = "127.0.0.1:0"


async def who(frame: bytes, caller: str) -> bytes:
    return caller.encode()


def nowhere() -> RelayEntry:
    return RelayEntry("relay", f"127.0.0.1:{free_ports(1)[0]}")


async def wait_at_relays(node: GrpcTransport, answer: OnFrame = who) -> RelayClient:
    """Let a node wait at its relays; return its end of them once one has taken it."""
    await node.listen("relay", answer)
    assert node.relay is not None
    await node.relay.up.wait()
    return node.relay


async def all_up(*nodes: GrpcTransport) -> None:
    """Wait until nodes wait at all their relays."""
    async with asyncio.timeout(GUARD_S):
        for node in nodes:
            assert node.relay is not None
            while not all(relay.up for relay in node.relay.relays):
                node.relay.up.clear()
                await node.relay.up.wait()


async def test_a_node_is_reached_through_the_relay_that_answers(mesh: Mesh) -> None:
    relay = await mesh.relay()
    relays = (nowhere(), relay.at)
    b, a = mesh.transport("b", *relays), mesh.transport("a", *relays)
    assert (await wait_at_relays(b)).trouble == ""
    assert await a.send("relay", b"x", GUARD_S, "b") == mesh.id("a").encode()
    assert a.path("relay", "b") == (f"relay {relay.at.address}", "its address is `relay`")
    with pytest.raises(Unreachable, match=r"cannot reach c through a relay: .*does not wait"):
        await a.send("relay", b"x", GUARD_S, "c")


async def test_a_relay_is_given_up_as_soon_as_the_direct_way_works(mesh: Mesh) -> None:
    (port,) = free_ports(1)
    there = f"127.0.0.1:{port}"
    relay = await mesh.relay()
    b, a = mesh.transport("b", relay.at), mesh.transport("a", relay.at)
    await wait_at_relays(b)
    assert await a.send(there, b"x", GUARD_S, "b") == mesh.id("a").encode()
    assert a.path(there, "b") == (f"relay {relay.at.address}", "it does not answer directly")
    direct = mesh.transport("b")
    await direct.listen(there, who)
    async with asyncio.timeout(GUARD_S):
        while a.path(there, "b") != ("direct", ""):
            await a.send(there, b"x", GUARD_S, "b")


async def test_a_direct_way_on_which_a_call_got_no_answer_is_left(mesh: Mesh) -> None:
    stuck, relay = Stuck(), await mesh.relay()
    b, a = mesh.transport("b", relay.at), mesh.transport("a", relay.at)
    there = await b.listen(ANY, stuck)
    with pytest.raises(Unreachable, match="did not answer within"):
        await a.send(there, b"x", 1.0, "b")
    assert stuck.taken.is_set()
    assert a.path(there, "b")[0] == f"relay {relay.at.address}"
    stuck.free.set()
    async with asyncio.timeout(GUARD_S):
        while a.path(there, "b") != ("direct", ""):
            with contextlib.suppress(Unreachable):
                await a.send(there, b"x", GUARD_S, "b")


async def test_a_relay_through_which_a_call_got_no_answer_is_left_for_another_one(
    mesh: Mesh,
) -> None:
    stuck = Stuck()
    one, two = await mesh.relay("one"), await mesh.relay("two")
    b, a = mesh.transport("b", one.at, two.at), mesh.transport("a", one.at, two.at)
    await b.listen("relay", stuck)
    await a.listen("relay", who)
    await all_up(a, b)
    with pytest.raises(Unreachable, match="did not answer within"):
        await a.send("relay", b"x", 1.0, "b")
    assert stuck.taken.is_set()
    stuck.free.set()
    assert await a.send("relay", b"x", GUARD_S, "b") == b"late x"
    assert a.path("relay", "b")[0] == f"relay {two.at.address}"


async def test_calls_move_to_another_relay_when_one_is_about_to_stop(mesh: Mesh) -> None:
    one, two = await mesh.relay("one"), await mesh.relay("two")
    b, a = mesh.transport("b", one.at, two.at), mesh.transport("a", one.at, two.at)
    await b.listen("relay", who)
    await a.listen("relay", who)
    await all_up(a, b)
    assert await a.send("relay", b"x", GUARD_S, "b") == mesh.id("a").encode()
    assert one.service.streams == 1
    async with asyncio.timeout(GUARD_S):
        await one.service.drain(2 * GUARD_S)  # until its streams have ended
        assert await a.send("relay", b"x", GUARD_S, "b") == mesh.id("a").encode()
    assert (one.service.streams, two.service.streams) == (0, 1)


async def test_relays_learn_of_revocations_and_invitations_while_a_node_waits(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    roster = mesh.roster()
    mesh.id("c")
    monkeypatch.setattr("fednode.transports.relay_service.PING_S", 0.01)
    relay = await mesh.relay()
    b = mesh.transport("b", relay.at, roster=roster)
    known, taken = asyncio.Event(), asyncio.Event()
    relay.roster.on_revoked = known.set
    take = relay.roster.set_invitations

    def notice(keys: Mapping[bytes, str], by: str = "") -> None:
        take(keys, by)
        taken.set()

    relay.roster.set_invitations = notice  # type: ignore[method-assign, assignment]
    await b.listen("relay", who)
    roster.take_revocation(mesh.revocation("c"))
    roster.set_invitations({invitation_key(TOKEN): "hospital-b"})
    async with asyncio.timeout(GUARD_S):
        await known.wait()
        await taken.wait()
    guest = mesh.transport("", relay.at, own=guest_of(TOKEN))
    with pytest.raises(Unreachable, match="b refuses this node: hospital-b is invited"):
        await guest.send("relay", b"x", GUARD_S, "b")


async def test_that_no_relay_answers_is_said_once_and_that_one_answers_again(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    at, said = nowhere(), list[str]()
    changed = asyncio.Event()

    def say(kind: str, text: str, bad: bool) -> None:
        said.append(kind)
        changed.set()

    node = mesh.transport("a", at, say=say)
    assert node.relay is not None
    await node.listen("relay", who)
    async with asyncio.timeout(GUARD_S):
        await changed.wait()
        assert f"nobody answers at {at.address}" in node.relay.trouble
        assert node.relay.relays[0].state == "lost"
        running = RunningRelay(mesh, "relay")
        await running.start(at.address)
        await node.relay.up.wait()
    assert said == ["relay.none", "relay.again"]
    assert node.relay.relays[0].state == "waiting"
    await running.server.close()


async def test_each_relay_says_why_it_cannot_be_used(mesh: Mesh) -> None:
    other, lost = Mesh("other"), nowhere()
    good, foreign = await mesh.relay(), await other.relay()
    wrong = RelayEntry("another", good.at.address)
    relays = (good.at, lost, foreign.at, wrong)
    client = RelayClient(relays, mesh.own("a"), mesh.roster())
    client.wait()
    async with asyncio.timeout(GUARD_S):
        while any(relay.state == "unknown" for relay in client.relays):
            await pause(0.01)
    assert [relay.up for relay in client.relays] == [True, False, False, False]
    found = [relay.why for relay in client.relays]
    assert found[:2] == ["", f"nobody answers at {lost.address}"]
    assert "does not show the certificate of the relay" in found[2]
    assert "does not show the certificate of the relay 'another'" in found[3]
    await client.close()
    await other.close()


async def test_a_relay_that_says_nothing_is_left(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.2)
    relay = await mesh.relay()
    lost = asyncio.Event()
    node = mesh.transport("a", relay.at, say=lambda *_: lost.set())
    await node.listen("relay", who)
    assert node.relay is not None
    async with asyncio.timeout(GUARD_S):
        await lost.wait()
    assert "did not answer in time" in node.relay.trouble


async def test_a_call_that_is_cancelled_on_its_way_in_leaves_no_socket(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = socket.socket(socket.AF_UNIX)
    ended = AsyncMock(side_effect=asyncio.CancelledError)
    monkeypatch.setattr(module, "connected_as", lambda *_: inner)
    monkeypatch.setattr(asyncio, "open_unix_connection", ended)
    client = RelayClient([], mesh.own("a"), mesh.roster())
    with pytest.raises(asyncio.CancelledError):
        await client._enter("b")
    assert inner.fileno() == -1
    await client.close()


async def test_relayed_callers_are_told_apart(mesh: Mesh) -> None:
    relay = await mesh.relay()
    b, sources = mesh.transport("b", relay.at), set[str]()

    async def see(frame: bytes, caller: str) -> bytes:
        limiter = b._limits.connections
        assert limiter is not None
        sources.update(line.origin for line in limiter._all)
        return b""

    callers = [mesh.transport(name, relay.at) for name in ("a", "c")]
    await wait_at_relays(b, see)
    for one in callers:
        await one.send("relay", b"x", GUARD_S, "b")
    assert len(sources) == 2
    assert all(source.startswith("relay.") for source in sources)
