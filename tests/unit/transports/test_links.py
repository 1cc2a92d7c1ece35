"""A node's links: trouble is told once, lost relays are found again, lies are noticed."""

from __future__ import annotations

import asyncio

import pytest

from fednode.transports import links as module
from fednode.transports import relay as relay_module
from fednode.transports.links import NoPath
from fednode.transports.opening import Link, RelayAt
from fednode.transports.ports import free_ports
from fednode.transports.session import Ends
from tests.unit.transports.relays import GUARD_S, NAMES, links_of, raised, until

STRANGE = RelayAt("127.0.0.1:1", NAMES["n38"])


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lost relays be tried again without pauses."""
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    monkeypatch.setattr(module, "AGAIN_MAX_S", 0.02)


async def never(ends: Ends, relay: str, caller: str) -> None:
    await asyncio.Event().wait()


async def test_relays_are_tried_without_a_place_and_without_waiting() -> None:
    async with raised() as relay:
        links = links_of("n1", relay.at, STRANGE, RelayAt(relay.at.address, NAMES["n38"]))
        good, silent, other = await links.try_each()
        assert good == (relay.at.address, "")
        assert silent == ("127.0.0.1:1", "nobody answers at 127.0.0.1:1")
        assert other[1].startswith(f"{relay.at.address} shows the key {relay.at.id}, and peers")
        assert (relay.relay.waiting, relay.relay.streams) == (0, 0)


async def test_that_no_relay_answers_is_said_once_and_again_when_one_does() -> None:
    said: list[tuple[str, str, bool]] = []
    where = f"127.0.0.1:{free_ports(1)[0]}"
    async with raised() as first:
        links = links_of(
            "n1", RelayAt(where, first.at.id), STRANGE, say=lambda *what: said.append(what)
        )
        assert links.trouble == ""
        links.wait(never)
        await until(lambda: links.trouble)
        assert f"nobody answers at {where}; nobody answers at 127.0.0.1:1" in links.trouble
        assert "this node's own network" in links.trouble
        with pytest.raises(NoPath, match="no relay answers"):
            await links.dial(NAMES["n2"])
        async with raised(address=where):
            await until(lambda: links.links[0].up)
            assert links.trouble == ""
        await until(lambda: links.trouble)
    assert [(kind, bad) for kind, _, bad in said] == [
        ("relay.none", True),
        ("relay.again", False),
        ("relay.none", True),
    ]


async def test_the_second_relay_is_used_where_the_first_knows_nobody() -> None:
    async with raised() as first, raised(51) as second:
        node = links_of("n1", second.at)
        node.wait(never)
        await until(lambda: node.links[0].up)
        caller = links_of("n2", first.at, second.at)
        ends, via = await caller.dial(NAMES["n1"])
        assert via == second.at.address
        assert first.relay.counts.refused == {"absent": 1}
        ends.writer.close()
        with pytest.raises(NoPath, match=rf"{first.at.address}.* does not wait here; .*wait here"):
            await caller.dial(NAMES["n3"])


async def test_relays_that_answer_are_dialled_first() -> None:
    async with raised() as relay:
        node, caller = links_of("n1", relay.at), links_of("n2", STRANGE, relay.at)
        for one in (node, caller):
            one.wait(never)
        await until(lambda: node.links[0].up and caller.links[1].up)
        tried: list[str] = []
        opened = caller._open

        async def watched(link: Link, *more: object) -> Ends:
            tried.append(link.address)
            return await opened(link, *more)  # type: ignore[arg-type]

        caller._open = watched  # type: ignore[method-assign,assignment]
        ends, _ = await caller.dial(NAMES["n1"])
        assert tried[0] == relay.at.address
        ends.writer.close()


async def test_the_streams_of_a_relay_that_hangs_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hung relay keeps its connections open; without this, TCP would hold the streams."""
    monkeypatch.setattr(module, "SILENT_S", 0.3)
    async with raised(watch=False) as relay:
        node, caller = links_of("n1", relay.at), links_of("n2", relay.at)
        for one in (node, caller):
            one.wait(never)
        await until(lambda: node.links[0].up and caller.links[0].up)
        ends, _ = await caller.dial(NAMES["n1"])
        async with asyncio.timeout(GUARD_S):
            assert await ends.reader.read(1) == b""
        ends.writer.close()
        await until(lambda: "said nothing for 0.3 s" in caller.links[0].why or caller.links[0].up)


async def test_a_relay_that_pings_keeps_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "PING_S", 0.05)
    async with raised() as relay:
        node = links_of("n1", relay.at)
        node.wait(never)
        await until(lambda: relay.relay.waiting)
        (held,) = relay.relay._waiting.values()
        began = held.heard_at
        await until(lambda: held.heard_at > began + 0.2)
        assert node.links[0].up


async def test_a_flood_of_calls_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWERING_MAX", 0)
    async with raised() as relay:
        node = links_of("n1", relay.at)
        node.wait(never)
        await until(lambda: node.links[0].up)
        with pytest.raises(NoPath, match="0 calls are being answered already"):
            await links_of("n2", relay.at).dial(NAMES["n1"])


async def test_a_node_that_no_relay_can_know_yet_does_not_wait() -> None:
    told: list[str] = []
    known = asyncio.Event()
    async with raised() as relay:
        links = links_of("n1", relay.at, known=known.is_set, say=lambda *what: told.append(what[0]))
        links.wait(never)
        for _ in range(100):
            await asyncio.sleep(0)
        assert (links.links[0].state, relay.refused) == ("unknown", [])
        known.set()
        await until(lambda: links.links[0].up)
        assert told == []


async def test_early_bytes_come_with_the_dial_and_go_nowhere_if_it_is_refused() -> None:
    came: list[bytes] = []
    over = asyncio.Event()

    async def read(ends: Ends, relay: str, caller: str) -> None:
        came.append(await ends.reader.read(5))
        over.set()

    async with raised() as relay:
        called, caller = links_of("n1", relay.at), links_of("n2", relay.at)
        with pytest.raises(NoPath, match="does not wait here"):
            await caller.dial(NAMES["n1"], early=b"hello")
        called.wait(read)
        await until(lambda: called.links[0].up)
        ends, _ = await caller.dial(NAMES["n1"], early=b"again")
        async with asyncio.timeout(GUARD_S):
            await over.wait()
        ends.writer.close()
        assert came == [b"again"]


async def test_a_node_without_relays_has_no_trouble() -> None:
    node = links_of("n1")
    node.wait(never)
    assert node.trouble == ""
