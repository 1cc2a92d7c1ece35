"""The exits: which path is shown and why, and how a better path takes the place of another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from fednode.errors import Unreachable
from fednode.transports import exits as module
from fednode.transports.address import parse
from fednode.transports.ports import free_ports
from tests.unit.transports.relays import GUARD_S, NAMES, Node, Raised, raised, until


async def who(frame: bytes, caller: str) -> bytes:
    return caller.encode()


@pytest.fixture
async def relay() -> AsyncIterator[Raised]:
    async with raised() as one:
        yield one


async def test_a_place_goes_direct_once_its_port_is_open_and_is_relayed_when_it_is_shut(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call is lost on the way: one that is under way ends on the old path."""
    monkeypatch.setattr(module, "AGAIN_S", 0.05)
    where = f"127.0.0.1:{free_ports(1)[0]}"
    free, taken = asyncio.Event(), asyncio.Event()

    async def on_frame(frame: bytes, caller: str) -> bytes:
        if frame == b"slow":
            taken.set()
            await free.wait()
        return frame + caller.encode()

    node, caller = Node("n1", relay.at), Node("n2", relay.at, reach="auto")
    await node.listen("relay", on_frame)
    said = NAMES["n2"].encode()
    assert await caller.send(where, b"", GUARD_S, "n1") == said
    path, why = caller.tls.exits.path(where, "n1")
    assert (path, why) == (f"relay {relay.at.address}", f"nobody answers at {where}")
    slow = asyncio.ensure_future(caller.send(where, b"slow", GUARD_S, "n1"))
    await taken.wait()
    await node.tls.listen(parse(where))  # its firewall lets callers in from now on
    await until(lambda: (where, "n1") not in caller._peers)
    assert await caller.send(where, b"", GUARD_S, "n1") == said
    assert caller.tls.exits.path(where, "n1") == ("direct", "")
    assert not slow.done()
    free.set()
    assert await slow == b"slow" + said
    await until(lambda: not relay.relay.streams)
    node.tls._servers.pop().close()  # and no longer
    path_of = caller.tls.exits.open[where, "n1"].paths[0]
    path_of.outside.writer.close()
    await until(lambda: not caller.tls.exits.open[where, "n1"].paths)
    reached = b""
    while reached != said:
        with contextlib.suppress(Unreachable):
            reached = await caller.send(where, b"", GUARD_S, "n1")
        await asyncio.sleep(0)
    assert caller.tls.exits.path(where, "n1")[0] == f"relay {relay.at.address}"
    for one in (node, caller):
        await one.close()


async def test_what_goes_through_a_relay_that_stops_moves_to_another() -> None:
    async with raised() as first, raised(51) as second:
        node, caller = Node("n1", first.at, second.at), Node("n2", first.at, second.at)
        await node.listen("relay", who)
        await caller.listen("relay", who)
        links = [one for each in (node, caller) for one in each.tls.links.links]  # type: ignore[union-attr]
        await until(lambda: all(one.up for one in links))
        assert await caller.send("relay", b"", GUARD_S, "n1") == NAMES["n2"].encode()
        via = caller.tls.exits.path("relay", "n1")[0].removeprefix("relay ")
        here, other = (first, second) if via == first.at.address else (second, first)
        stopping = asyncio.ensure_future(here.relay.drain())
        await until(lambda: ("relay", "n1") not in caller._peers)
        assert await caller.send("relay", b"", GUARD_S, "n1") == NAMES["n2"].encode()
        assert caller.tls.exits.path("relay", "n1")[0] == f"relay {other.at.address}"
        await asyncio.wait_for(stopping, GUARD_S)
        for one in (node, caller):
            await one.close()


async def test_a_place_that_nobody_was_sent_to_has_no_path() -> None:
    node = Node("n1")
    assert node.tls.exits.path("127.0.0.1:1", "n2") == ("", "")
    assert node.tls.exits.fault("127.0.0.1:1", "n2") == ""
    await node.close()
