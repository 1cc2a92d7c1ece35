"""Which way leads to a peer: direct where possible, through a relay otherwise, and whose key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fednode.errors import Unreachable
from fednode.transports import paths as module
from fednode.transports.address import RELAYED, Endpoint, parse
from fednode.transports.links import Links, NoPath
from fednode.transports.paths import Path
from fednode.transports.ports import free_ports
from fednode.transports.relay import _Waiting
from fednode.transports.session import Ends, Inner, PeerRejected
from tests.unit.transports.relays import GUARD_S, NAMES, Node, Raised, raised, until


async def who(frame: bytes, caller: str) -> bytes:
    return caller.encode()


@pytest.fixture
async def relay() -> AsyncIterator[Raised]:
    async with raised() as one:
        yield one


async def opened(node: Node, endpoint: Endpoint, name: str) -> Path:
    path = await node.tls.exits.paths.open(endpoint, name)
    path.outside.writer.close()
    return path


async def test_the_direct_way_is_taken_where_it_works(relay: Raised) -> None:
    node, caller = Node("n1", relay.at), Node("n2", relay.at, reach="auto")
    where = parse(await node.listen("127.0.0.1:0", who))
    path = await opened(caller, where, "n1")
    assert (path.shown, path.why, path.id) == ("direct", "", NAMES["n1"])
    assert relay.relay.counts.streams == 0
    for one in (node, caller):
        await one.close()


async def test_a_node_without_an_open_port_is_reached_through_a_relay(relay: Raised) -> None:
    node, caller = Node("n1", relay.at), Node("n2", relay.at, reach="auto")
    assert await node.listen("relay", who) == "relay"
    path = await opened(caller, RELAYED, "n1")
    assert (path.shown, path.why) == (f"relay {relay.at.address}", "its address is `relay`")
    assert await caller.send("relay", b"x", GUARD_S, "n1") == NAMES["n2"].encode()
    for one in (node, caller):
        await one.close()


async def test_a_relay_helps_at_once_where_the_direct_way_fails_or_failed(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, caller = Node("n1", relay.at), Node("n2", relay.at, reach="auto")
    await node.listen("relay", who)
    shut = parse(f"127.0.0.1:{free_ports(1)[0]}")
    for _ in range(2):
        path = await opened(caller, shut, "n1")
        assert path.via == relay.at.address
        assert path.why == f"nobody answers at {shut}"
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    tried: list[Any] = []
    direct = type(caller.tls.exits.paths)._direct

    async def watched(self: Any, *what: Any) -> Path:
        tried.append(what)
        return await direct(self, *what)

    monkeypatch.setattr(type(caller.tls.exits.paths), "_direct", watched)
    await opened(caller, shut, "n1")
    assert tried == [(shut, "n1")]
    for one in (node, caller):
        await one.close()


async def test_a_relay_joins_a_direct_try_that_takes_long(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DIRECT_FIRST_S", 0.01)
    node, caller = Node("n1", relay.at), Node("n2", relay.at, reach="auto")
    await node.listen("relay", who)

    async def slow(_: Endpoint) -> Any:
        await asyncio.Event().wait()

    caller.tls.exits.paths.connect = slow
    path = await opened(caller, parse("192.0.2.1:7700"), "n1")
    assert path.via == relay.at.address
    assert path.why == "it did not answer directly at once"
    for one in (node, caller):
        await one.close()


async def test_both_reasons_are_said_where_both_ways_fail(relay: Raised) -> None:
    caller = Node("n2", relay.at, reach="auto")
    shut = parse(f"127.0.0.1:{free_ports(1)[0]}")
    for _ in range(2):  # also while the failed direct try is remembered
        with pytest.raises(NoPath, match=f"nobody answers at {shut}; {relay.at.address}: .* wait"):
            await opened(caller, shut, "n1")
    await caller.close()


async def test_what_the_settings_forbid_is_said(relay: Raised) -> None:
    direct, alone = Node("n2", relay.at, reach="direct"), Node("n3")
    with pytest.raises(NoPath, match="`reach` is direct here"):
        await opened(direct, RELAYED, "n1")
    with pytest.raises(NoPath, match=r"peers\.yaml names none"):
        await opened(alone, RELAYED, "n1")
    caller = Node("n4", relay.at)
    with pytest.raises(NoPath, match="the id of 'nobody' is not known here"):
        await opened(caller, RELAYED, "nobody")
    with pytest.raises(Unreachable, match=r"cannot reach n1: .* does not wait here"):
        await caller.send("relay", b"x", GUARD_S, "n1")
    for one in (direct, alone, caller):
        await one.close()


async def test_a_relay_that_swaps_two_nodes_is_refused_and_named(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hostile relay connects a caller with another node than it asked for."""
    first, second = Node("n1", relay.at), Node("n2", relay.at)
    for one in (first, second):
        await one.listen("relay", who)
    waiting, take = relay.relay._waiting, relay.relay._take
    waiting[NAMES["n1"]], waiting[NAMES["n2"]] = waiting[NAMES["n2"]], waiting[NAMES["n1"]]

    async def taking(id: str, *more: Any) -> None:
        await take(NAMES["n1"] if id == NAMES["n2"] else id, *more)

    monkeypatch.setattr(relay.relay, "_take", taking)
    caller = Node("n3", relay.at)
    with pytest.raises(PeerRejected, match=rf"answers at the relay {relay.at.address}: it is 'n2'"):
        await opened(caller, RELAYED, "n1")
    for node in (first, second, caller):
        await node.close()


async def test_the_second_relay_is_used_where_the_first_swaps_nodes(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller names the hostile relay, and does not dial this node through it first again."""
    async with raised(51) as honest:
        nodes = [Node(name, relay.at, honest.at) for name in ("n1", "n2")]
        for one in nodes:
            await one.listen("relay", who)
            links = one.tls.links
            assert links is not None
            await until(lambda links=links: all(link.up for link in links.links))  # type: ignore[misc]
        waiting, take = relay.relay._waiting, relay.relay._take
        waiting[NAMES["n1"]], waiting[NAMES["n2"]] = waiting[NAMES["n2"]], waiting[NAMES["n1"]]

        async def taking(id: str, *more: Any) -> None:
            await take(NAMES["n1"] if id == NAMES["n2"] else id, *more)

        monkeypatch.setattr(relay.relay, "_take", taking)
        caller = Node("n3", relay.at, honest.at)
        path = await opened(caller, RELAYED, "n1")
        assert (path.via, path.id) == (honest.at.address, NAMES["n1"])
        ((kind, name, text),) = caller.told
        assert (kind, name) == ("relay", "n1")
        assert f"answers at the relay {relay.at.address}: it is 'n2'" in text
        dialled = relay.relay.counts.streams
        assert (await opened(caller, RELAYED, "n1")).via == honest.at.address
        assert relay.relay.counts.streams == dialled
        for node in (*nodes, caller):
            await node.close()


async def test_a_relay_that_carries_nothing_is_left_after_a_late_call(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raised(51) as honest:
        node, caller = Node("n1", relay.at, honest.at), Node("n2", relay.at, honest.at)
        await node.listen("relay", who)
        links = node.tls.links
        assert links is not None
        await until(lambda: all(link.up for link in links.links))
        said = NAMES["n2"].encode()
        assert await caller.send("relay", b"", GUARD_S, "n1") == said
        assert caller.tls.exits.path("relay", "n1")[0] == f"relay {relay.at.address}"

        monkeypatch.setattr(Inner, "write", lambda self, data: None)
        with pytest.raises(Unreachable):
            await caller.send("relay", b"", 0.2, "n1")
        monkeypatch.undo()
        assert await caller.send("relay", b"", GUARD_S, "n1") == said
        assert caller.tls.exits.path("relay", "n1")[0] == f"relay {honest.at.address}"
        for one in (node, caller):
            await one.close()


async def test_a_relay_that_names_a_false_caller_is_refused_and_named(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, caller = Node("n1", relay.at), Node("n2", relay.at)
    await node.listen("relay", who)
    say = _Waiting.say

    def lie(self: _Waiting, **what: Any) -> None:
        if "call" in what:
            what["call"].caller = NAMES["n3"]
        say(self, **what)

    monkeypatch.setattr(_Waiting, "say", lie)
    with pytest.raises(Unreachable, match="hung up right after the TLS handshake"):
        await caller.send("relay", b"x", GUARD_S, "n1")
    kind, id, text = node.told[0]
    assert (kind, id) == ("relay", NAMES["n2"])
    assert f"relay {relay.at.address}" in text
    assert f"named {NAMES['n3']} as the caller, and {NAMES['n2']} proved its key" in text
    for one in (node, caller):
        await one.close()


class _Crumbs:
    """A reader to which each byte comes alone."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    async def read(self, n: int = -1) -> bytes:
        data: bytes = await self._reader.read(1)
        return data


async def test_a_relay_that_waits_with_each_byte_is_left_and_costs_no_member_anything(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TLS handshake in more than a hundred pieces is none, and the second relay is used."""
    opening = Links._open

    async def crumbled(self: Links, link: Any, *more: Any) -> Ends:
        ends = await opening(self, link, *more)
        return Ends(_Crumbs(ends.reader), ends.writer) if link.address == relay.at.address else ends

    async def hear(frame: bytes, caller: str) -> bytes:
        return frame

    async with raised(51, watch=False) as honest:
        node, caller = (Node(name, relay.at, honest.at) for name in ("n1", "n2"))
        await node.listen("relay", hear)
        links = node.tls.links
        assert links is not None
        await until(lambda: all(link.up for link in links.links))
        monkeypatch.setattr(Links, "_open", crumbled)
        assert await caller.send("relay", b"frame", GUARD_S, "n1") == b"frame"
        assert caller.tls.exits.path("relay", "n1")[0] == f"relay {honest.at.address}"
        assert relay.relay.counts.streams == 1
        told = [(kind, who) for one in (node, caller) for kind, who, _ in one.told]
        assert all(who.startswith("relay ") and kind == "handshake" for kind, who in told)
        for one in (node, caller):
            await one.close()
