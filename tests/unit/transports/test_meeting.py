"""Two nodes behind NATs meet without a relay; what relays and members name is not dialled freely.

The connections are TCP's own simultaneous open; of the NATs tells tests/unit/transports/nats.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from fednode.transports import exits as exits_module
from fednode.transports import meeting as module
from fednode.transports import relay_frames as frames
from fednode.transports.address import RELAYED, Endpoint, parse
from fednode.transports.links import Links, NoPath
from fednode.transports.meeting import Meetings, TooSoon
from fednode.transports.opening import NoRelay, open_directly
from fednode.transports.paths import Path
from fednode.transports.ports import free_ports
from fednode.transports.relay import Relay
from fednode.transports.session import Ends, PeerRejected
from fednode.wire.gen import relay_pb2 as pb
from tests.unit.transports.nats import Nats
from tests.unit.transports.relays import GUARD_S, NAMES, Node, Raised, links_of, raised, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the NATs here are Linux's sockets")
CONNECT = Meetings._connect


@pytest.fixture(autouse=True)
def nats(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nats]:
    """Let loopback count as public, and stand NATs there."""
    made = Nats()
    monkeypatch.setattr(Endpoint, "public", property(lambda place: place.port > 1023))
    monkeypatch.setattr(module, "_bound", made.bound)
    monkeypatch.setattr(exits_module, "AGAIN_S", 0.02)

    async def connect(self: Meetings, own: module.Seen, theirs: Endpoint) -> Any:
        made.dialled.append(theirs)
        return await CONNECT(self, own, theirs)

    monkeypatch.setattr(Meetings, "_connect", connect)
    yield made
    made.close()


@pytest.fixture
async def relay() -> AsyncIterator[Raised]:
    async with raised() as one:
        yield one


async def who(frame: bytes, caller: str) -> bytes:
    return caller.encode()


async def pair(*relays: Raised, **more: Any) -> tuple[Node, Node]:
    """Return two nodes that wait at relays; the second one meets others."""
    at = [one.at for one in relays]
    node, caller = Node("n1", *at, **{"reach": "auto", **more}), Node("n2", *at, reach="auto")
    for one in (node, caller):
        await one.listen("relay", who)
        links = one.tls.links
        assert links is not None
        await until(lambda links=links: all(link.up for link in links.links))  # type: ignore[misc]
    return node, caller


async def met(caller: Node) -> Path:
    return await caller.tls.exits.paths.meet(RELAYED, "n1")


async def unmet(caller: Node) -> str:
    """Return why a node is not met."""
    with pytest.raises((NoPath, PeerRejected)) as fault:
        await met(caller)
    return str(fault.value)


async def ended(*nodes: Node) -> None:
    for one in nodes:
        await one.close()


async def test_a_relayed_pair_goes_direct_and_no_call_is_lost(relay: Raised) -> None:
    """A call under way ends on the relayed path; new ones take the direct path, both ways."""
    free = asyncio.Event()

    async def hear(frame: bytes, caller: str) -> bytes:
        if frame == b"slow":
            await free.wait()
        return frame[:4]

    node, caller = Node("n1", relay.at, reach="auto"), Node("n2", relay.at, reach="auto")
    for one in (node, caller):
        await one.listen("relay", hear)
    slow = asyncio.ensure_future(caller.send("relay", b"slow", GUARD_S, "n1"))
    await until(lambda: caller.tls.exits.path("relay", "n1")[0].startswith("relay"))
    exit = caller.tls.exits.open["relay", "n1"]
    await until(lambda: exit.met)
    assert await caller.send("relay", b"new", GUARD_S, "n1") == b"new"
    assert caller.tls.exits.path("relay", "n1") == ("direct", "")
    assert not slow.done()
    free.set()
    assert await slow == b"slow"
    carried = relay.relay.counts.bytes
    assert await caller.send("relay", bytes(3 << 20), GUARD_S, "n1") == bytes(4)
    assert relay.relay.counts.bytes < carried + 100_000
    await until(lambda: not relay.relay.streams)
    assert (node.told, caller.told) == ([], [])
    await ended(node, caller)


async def test_both_ends_prove_their_keys_and_the_other_way_is_met_later(
    relay: Raised, nats: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, caller = await pair(relay)
    path = await met(caller)
    assert (path.id, path.shown, path.via) == (NAMES["n1"], "direct", "")
    assert len(nats.dialled) == 2
    with pytest.raises(TooSoon, match="less than 15 s ago"):
        await node.tls.exits.paths.meet(RELAYED, "n2")
    monkeypatch.setattr(module, "PAIR_S", 0.0)
    other = await node.tls.exits.paths.meet(RELAYED, "n2")
    assert other.id == NAMES["n2"]
    for one in (path, other):
        one.outside.writer.close()
    await ended(node, caller)


async def test_a_member_that_asks_too_often_is_told_so_and_nothing_is_dialled(
    relay: Raised, nats: Nats
) -> None:
    node, caller = await pair(relay)
    assert node.tls.meetings is not None
    node.tls.meetings.claim(NAMES["n2"])
    with pytest.raises(TooSoon, match="less than 15 s ago"):
        await met(caller)
    assert nats.dialled == []
    await ended(node, caller)


@pytest.mark.parametrize("place", ["10.0.0.1:4000", "127.0.0.1:4000", "198.51.100.7:25", "x:4000"])
async def test_a_member_that_names_no_public_place_is_not_dialled(
    relay: Raised, nats: Nats, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, caller = await pair(relay)
    monkeypatch.undo()
    monkeypatch.setattr(Meetings, "_connect", None)
    stream, sent = _said(pb.FromNode(meet=pb.Meet(address=place)))
    assert node.tls.meetings is not None
    assert await node.tls.meetings.answer(stream, NAMES["n2"]) is None
    (answer,) = sent
    assert not answer.meet.address
    assert "not public" in answer.meet.why
    assert nats.dialled == []
    await ended(node, caller)


def _said(*messages: pb.FromNode) -> tuple[Ends, list[pb.FromNode]]:
    """Return a stream on which somebody said something, and what is answered there."""
    sent: list[pb.FromNode] = []

    class Out:
        def write(self, data: bytes) -> None:
            sent.append(frames.from_node(data[frames.HEAD :]))

        async def drain(self) -> None:
            pass

        def close(self) -> None:
            pass

    reader = asyncio.StreamReader()
    for message in messages:
        reader.feed_data(frames.pack(message))
    reader.feed_eof()
    return Ends(reader, Out()), sent


async def test_a_stream_that_says_nothing_meets_nobody(relay: Raised, nats: Nats) -> None:
    meetings = Meetings(links_of("n1", relay.at))
    stream, sent = _said()
    assert await meetings.answer(stream, NAMES["n2"]) is None
    assert "says nothing of where to meet" in sent[0].meet.why
    assert nats.dialled == []


def lying(relay: Raised, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a relay say that each node is at a place."""
    show = Relay._show

    async def lie(self: Relay, id: str, at: str, ends: Ends) -> None:
        await show(self, id, place if self is relay.relay else at, ends)

    monkeypatch.setattr(Relay, "_show", lie)


@pytest.mark.parametrize("place", ["10.0.0.1:4000", "127.0.0.1:4000", "198.51.100.7:25"])
async def test_a_relay_that_names_a_private_place_is_named_and_nothing_is_dialled(
    relay: Raised, nats: Nats, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hostile relay also skips its own check."""
    node, caller = await pair(relay)
    asked: list[bool] = []

    def public(at: Endpoint) -> bool:
        asked.append(True)
        return len(asked) == 1  # the relay's own look

    monkeypatch.setattr(Endpoint, "public", property(public))
    lying(relay, place, monkeypatch)
    text = await unmet(caller)
    assert f"{relay.at.address} sees this node at {place}, which is no public address" in text
    assert caller.told == [("relay", f"relay {relay.at.address}", text)]
    assert nats.dialled == []
    await ended(node, caller)


async def test_two_relays_that_differ_let_nobody_be_dialled(
    relay: Raised, nats: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So looks a NAT with a port for each connection, and a relay that names a third host."""
    async with raised(51) as honest:
        node, caller = await pair(relay, honest)
        lying(relay, "198.51.100.7:4000", monkeypatch)
        text = await unmet(caller)
        assert f"{relay.at.address} sees this node at 198.51.100.7:4000 and " in text
        assert f"{honest.at.address} at 127.0.0.1:" in text
        assert nats.dialled == []
        await ended(node, caller)


async def test_a_third_host_that_a_relay_names_gets_no_word_and_the_relay_is_named(
    relay: Raised, nats: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is dialled once, and shows no key of the node; the pair stays relayed."""
    third = Node("n3")
    place = await third.listen("127.0.0.1:0", who)
    node, caller = await pair(relay)
    lying(relay, place, monkeypatch)
    text = await unmet(caller)
    assert f"answers at {place}: " in text
    assert f"where {relay.at.address} led to {NAMES['n1']}" in text
    assert set(nats.dialled) == {parse(place)}
    assert await caller.send("relay", b"", GUARD_S, "n1") == NAMES["n2"].encode()
    assert caller.tls.exits.path("relay", "n1")[0] == f"relay {relay.at.address}"
    await ended(node, caller, third)


async def test_a_pair_that_cannot_meet_stays_relayed_and_says_why(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as two NATs of which one gives each connection a port of its own."""
    monkeypatch.setattr(module, "MEET_S", 0.05)
    monkeypatch.setattr(module, "PAIR_S", 0.0)
    dead = free_ports(1)[0]
    lying(relay, f"127.0.0.1:{dead}", monkeypatch)
    node, caller = await pair(relay)
    assert await caller.send("relay", b"", GUARD_S, "n1") == NAMES["n2"].encode()
    exit = caller.tls.exits.open["relay", "n1"]
    await until(lambda: exit.unmet)
    shown, why = caller.tls.exits.path("relay", "n1")
    assert shown == f"relay {relay.at.address}"
    assert why.startswith("its address is `relay`; no connection through both NATs ")
    assert await caller.send("relay", b"", GUARD_S, "n1") == NAMES["n2"].encode()
    await ended(node, caller)


async def test_who_is_reached_by_relays_alone_meets_nobody(relay: Raised, nats: Nats) -> None:
    node, caller = await pair(relay, reach="relay")
    assert "its `reach` is relay" in await unmet(caller)
    assert nats.dialled == []
    await node.send("relay", b"", GUARD_S, "n2")
    assert not node.tls.exits._meets
    await ended(node, caller)


async def test_behind_a_proxy_nobody_is_met(relay: Raised, nats: Nats) -> None:
    """The relay would see the proxy's port."""
    inside = parse(relay.at.address)

    async def forward(reader: Any, writer: Any) -> None:
        there = await open_directly(inside)

        async def copy(source: Any, target: Any) -> None:
            while data := await source.read(1 << 16):
                target.write(data)
            target.close()

        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    proxy = await asyncio.start_server(forward, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]

    async def through(_: Endpoint) -> Any:
        return await asyncio.open_connection("127.0.0.1", port)

    node, caller = await pair(relay, connect=through)
    text = await unmet(caller)
    assert f"{relay.at.address} is reached through a proxy" in text
    assert nats.dialled == []
    await ended(node, caller)
    proxy.close()


async def test_commands_meet_nobody(relay: Raised) -> None:
    node, command = Node("n1", relay.at, reach="auto"), Node("n2", relay.at, reach="auto")
    await node.listen("relay", who)
    await command.send("relay", b"", GUARD_S, "n1")
    assert not command.tls.exits._meets
    await ended(node, command)


async def test_a_path_that_no_call_takes_is_closed(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exits_module, "KEPT_S", 0.01)
    node, caller = await pair(relay)
    await caller.send("relay", b"", GUARD_S, "n1")
    exit = caller.tls.exits.open["relay", "n1"]
    await until(lambda: exit.met)
    path = exit.met
    await until(lambda: exit.met is None)
    assert path is not None
    assert path.outside.writer.is_closing()  # type: ignore[attr-defined]
    await ended(node, caller)


async def test_one_who_meets_without_a_relay_is_refused(relay: Raised) -> None:
    node, caller = Node("n1", relay.at, reach="auto"), Node("n2", relay.at, reach="auto")
    where = parse(await node.listen("127.0.0.1:0", who))
    caller.tls.exits.paths.offer = b"fednode-meet/1"
    path = await caller.tls.exits.paths.direct(where, "n1")
    assert await path.outside.reader.read() is not None
    await until(lambda: node.told)
    assert node.told[0][0] == "relay"
    assert "asks to meet, but comes through no relay" in node.told[0][2]
    path.outside.writer.close()
    await ended(node, caller)


async def test_another_member_that_comes_in_a_nodes_place_is_refused(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, third = Node("n1", relay.at, reach="auto"), Node("n3")
    came: asyncio.Queue[Ends] = asyncio.Queue()
    server = await asyncio.start_server(lambda *both: came.put(Ends(*both)), "127.0.0.1", 0)
    place = Endpoint(*server.sockets[0].getsockname())
    opening = asyncio.ensure_future(third.tls.exits.paths.direct(place, ""))

    async def met(self: Meetings, stream: Ends, id: str) -> tuple[Ends, Endpoint]:
        return await came.get(), place

    monkeypatch.setattr(Meetings, "answer", met)
    await node.tls._meet(_said()[0], NAMES["n2"])
    ((kind, who, text),) = node.told
    assert (kind, who) == ("relay", NAMES["n3"])
    assert f"{NAMES['n3']} came where {NAMES['n2']} was to be met" in text
    with contextlib.suppress(NoPath, PeerRejected):
        (await opening).outside.writer.close()
    server.close()
    await ended(node, third)


async def test_a_relay_that_says_no_place_is_left_out(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nowhere(self: Relay, id: str, at: str, ends: Ends) -> None:
        ends.writer.write(frames.pack(pb.FromRelay(reply=pb.Reply(code="ok"))))
        ends.writer.write(frames.pack(pb.FromRelay(ping=pb.Ping())))

    monkeypatch.setattr(Relay, "_show", nowhere)
    links: Links = links_of("n1", relay.at)
    with pytest.raises(NoRelay, match="does not say where this node is"):
        await links.ask_where(links.links[0], open_directly)
