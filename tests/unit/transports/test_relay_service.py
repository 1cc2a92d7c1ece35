"""A relay: who may wait, dial and take, how much of it, and how it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from fednode.identity.certificates import Credential
from fednode.transports import relay_service as module
from fednode.transports.exchange import opened, wrapped
from fednode.transports.relay_service import DIAL, TAKE, TICKET, TO, WAIT
from fednode.wire.gen import relay_pb2
from tests.contract.faults import pause
from tests.contract.transport_suite import GUARD_S
from tests.meshes import Mesh, RunningRelay
from tests.unit.identity.people import invitation_key
from tests.unit.transports.test_callers import TOKEN, guest_of

Code = grpc.StatusCode
INVITATION = invitation_key(TOKEN)


class Caller:
    """One end that calls a relay by hand."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    async def wait(self, **said: Any) -> Any:
        """Begin to wait; return the call once the relay has taken it."""
        make = self._channel.unary_stream(
            WAIT, relay_pb2.WaitRequest.SerializeToString, relay_pb2.Ticket.FromString
        )
        call = make(relay_pb2.WaitRequest(**said))
        async with asyncio.timeout(GUARD_S):
            assert await call.read() == relay_pb2.Ticket()
        return call

    def dial(self, to: str) -> Any:
        return self._channel.stream_stream(DIAL, wrapped, opened)(metadata=((TO, to.encode()),))

    def take(self, ticket: bytes) -> Any:
        return self._channel.stream_stream(TAKE, wrapped, opened)(metadata=((TICKET, ticket),))


async def ticket_of(waiting: Any) -> relay_pb2.Ticket:
    """Return the next ticket of a node that waits."""
    async with asyncio.timeout(GUARD_S):
        ticket = relay_pb2.Ticket()
        while not ticket.ticket:
            ticket = await waiting.read()
    return ticket


async def end(call: Any) -> tuple[grpc.StatusCode, str]:
    async with asyncio.timeout(GUARD_S):
        return await call.code(), await call.details()


class Place:
    """A relay, and those that call it."""

    def __init__(self, mesh: Mesh, relay: RunningRelay) -> None:
        self.mesh, self.relay = mesh, relay

    async def caller(self, name: str, own: Credential | None = None) -> Caller:
        return Caller(await self.mesh.channel(name, self.relay.at.address, "relay", own))

    async def joined(self) -> tuple[Caller, Caller, Any, Any, Any]:
        """Return a and b, the waiting of b, the call of a, and its end at b."""
        a, b = await self.caller("a"), await self.caller("b")
        waiting = await b.wait()
        dialled = a.dial("b")
        ticket = await ticket_of(waiting)
        assert ticket.caller == "a"
        taken = b.take(ticket.ticket)
        await dialled.initial_metadata()
        return a, b, waiting, dialled, taken


@pytest.fixture
async def place(mesh: Mesh) -> Place:
    return Place(mesh, await mesh.relay())


async def test_bytes_run_both_ways_until_one_end_closes(place: Place) -> None:
    _, _, _, dialled, taken = await place.joined()
    await dialled.write(b"there")
    assert await taken.read() == b"there"
    await taken.write(b"back")
    assert await dialled.read() == b"back"
    assert (place.relay.service.waiting, place.relay.service.streams) == (1, 1)
    taken.cancel()
    assert (await end(dialled))[0] is Code.OK
    assert place.relay.service.counts.streams == 1
    assert place.relay.service.counts.bytes > 9


async def test_a_ticket_is_good_once_and_for_the_node_that_is_called(place: Place) -> None:
    a, b = await place.caller("a"), await place.caller("b")
    waiting = await b.wait()
    a.dial("b")
    ticket = (await ticket_of(waiting)).ticket
    assert (await end(a.take(ticket)))[0] is Code.NOT_FOUND
    taken = b.take(ticket)
    await taken.initial_metadata()
    assert (await end(b.take(ticket)))[0] is Code.NOT_FOUND
    assert (await end(b.take(b"x")))[1] == "the ticket is spent, too old, or not for this node"


async def test_a_call_that_nobody_takes_ends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICKET_S", 0.0)
    a, b = await place.caller("a"), await place.caller("b")
    waiting = await b.wait()
    code, text = await end(a.dial("b"))
    assert (code, text) == (Code.UNAVAILABLE, "b did not take the call within 0 s")
    ticket = (await ticket_of(waiting)).ticket
    assert (await end(b.take(ticket)))[0] is Code.NOT_FOUND
    assert place.relay.service.counts.refused == {"silent": 1, "ticket": 1}


@pytest.mark.parametrize(
    ("name", "most", "text"),
    [
        ("PAIR_MAX", 1, "the two nodes have 1 streams here already"),
        ("KEY_MAX", 1, "one of the nodes has 1 streams here already"),
        ("STREAMS_MAX", 1, "this relay has 1 streams already"),
        ("DIALS_S", 1.0, "a node may dial 1 times a second"),
    ],
)
async def test_streams_and_dials_are_bounded(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, name: str, most: float, text: str
) -> None:
    monkeypatch.setattr(module, name, most)
    place = Place(mesh, await mesh.relay())
    a, _, waiting, first, taken = await place.joined()
    assert await end(a.dial("b")) == (Code.RESOURCE_EXHAUSTED, text)
    taken.cancel()
    assert (await end(first))[0] is Code.OK
    other = await place.caller("c") if name == "DIALS_S" else a
    other.dial("b")
    assert (await ticket_of(waiting)).ticket, "the stream has ended, and c has its own dials"


async def test_few_nodes_wait_and_each_begins_seldom(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await place.caller("a"), await place.caller("b")
    monkeypatch.setattr(module, "WAITING_MAX", 1)
    await a.wait()
    refused = b._channel.unary_stream(WAIT)(b"")
    assert await end(refused) == (Code.RESOURCE_EXHAUSTED, "1 nodes wait here already")
    for _ in range(int(module.WAITS_AT_ONCE) - 1):
        await a.wait()
    text = f"a node may begin to wait {module.WAITS_S:g} times a second"
    assert (await end(a._channel.unary_stream(WAIT)(b"")))[1] == text


async def test_who_waits_again_takes_over_the_calls(place: Place) -> None:
    b = await place.caller("b")
    left: asyncio.Queue[relay_pb2.Ticket] = asyncio.Queue()
    left.put_nowait(relay_pb2.Ticket(ticket=b"left"))
    place.relay.service._waiting["b"] = left
    before = await b.wait()
    assert (await ticket_of(before)).ticket == b"left"
    place.relay.service._waiting["b"].put_nowait(relay_pb2.Ticket(ticket=b"next"))
    assert (await ticket_of(before)).ticket == b"next"
    await b.wait()
    assert place.relay.service.waiting == 1


async def test_nobody_is_reached_who_does_not_wait(place: Place) -> None:
    a = await place.caller("a")
    assert await end(a.dial("b")) == (Code.NOT_FOUND, "b does not wait here")


async def test_a_guest_dials_the_node_that_has_invited_it_and_no_other(place: Place) -> None:
    b, c = await place.caller("b"), await place.caller("c")
    waiting = await b.wait(invitations=[INVITATION, b"no key"])
    await c.wait()
    guest = await place.caller("", guest_of(TOKEN))
    assert (await end(guest.dial("c")))[0] is Code.PERMISSION_DENIED
    dialled = guest.dial("b")
    ticket = await ticket_of(waiting)
    assert ticket.caller == "guests of b"
    taken = b.take(ticket.ticket)
    await dialled.write(b"hello")
    assert await taken.read() == b"hello"
    assert (await end(guest.take(b"x")))[0] is Code.PERMISSION_DENIED
    await b.wait()  # without invitations: nobody is a guest any more
    assert (await end(guest.dial("b")))[0] is Code.PERMISSION_DENIED


async def test_a_guest_has_few_streams_and_not_for_long(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GUEST_MAX", 1)
    b = await place.caller("b")
    waiting = await b.wait(invitations=[INVITATION])
    guest = await place.caller("", guest_of(TOKEN))
    first = guest.dial("b")
    b.take((await ticket_of(waiting)).ticket)
    await first.initial_metadata()
    text = "the two nodes have 1 streams here already"
    assert await end(guest.dial("b")) == (Code.RESOURCE_EXHAUSTED, text)
    first.cancel()
    monkeypatch.setattr(module, "GUEST_S", 0.0)
    while place.relay.service.streams:
        await pause(0.01)
    second = guest.dial("b")
    b.take((await ticket_of(waiting)).ticket)
    assert await end(second) == (Code.OK, "")


async def test_invitations_are_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [invitation_key(bytes([n]) * 16) for n in range(6)]
    monkeypatch.setattr(module, "INVITATIONS_MAX", 4)
    monkeypatch.setattr(module, "GUESTS_MAX", 5)
    b, c = await place.caller("b"), await place.caller("c")
    await b.wait(invitations=made)
    roster = place.relay.roster
    assert roster.anchors.count(b"BEGIN") == 1 + 4
    await c.wait(invitations=made[4:])
    assert roster.anchors.count(b"BEGIN") == 1 + 5
    await b.wait(invitations=[bytes(4097)])
    assert roster.anchors.count(b"BEGIN") == 1 + 1


@pytest.mark.parametrize("gone", "ab")
async def test_a_revocation_ends_the_waiting_and_the_streams_of_a_key(
    place: Place, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """a dialled, and b took the call; one of the two is revoked."""
    monkeypatch.setattr(module, "PING_S", 0.01)
    a, b, waiting, dialled, taken = await place.joined()
    own, c = await a.wait(), await place.caller("c")
    revoked, ended, stream = {"a": (a, own, taken), "b": (b, waiting, dialled)}[gone]
    await c.wait(revocations=[b"nonsense", place.mesh.revocation(gone)])
    async with asyncio.timeout(GUARD_S):
        assert (await end(stream))[0] is Code.OK
        while await ended.read() is not grpc.aio.EOF:
            pass
    code, text = await end(revoked.dial("c"))
    assert code is Code.PERMISSION_DENIED
    assert "revoked" in text
    assert place.relay.service.waiting == 2


async def test_a_relay_that_drains_ends_the_waiting_and_lets_streams_end(place: Place) -> None:
    a, _, waiting, dialled, taken = await place.joined()
    draining = asyncio.ensure_future(place.relay.service.drain(GUARD_S))
    assert await end(waiting) == (Code.UNAVAILABLE, "this relay is about to stop")
    assert (await end(a.dial("b")))[0] is Code.UNAVAILABLE
    await dialled.write(b"still")
    assert await taken.read() == b"still"
    assert not draining.done()
    dialled.cancel()
    await asyncio.wait_for(draining, GUARD_S)
