"""The exits: which path is shown and why, and how a better path takes the place of another."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fednode.errors import Unreachable
from fednode.transports import exits as module
from fednode.transports.address import Endpoint, parse
from fednode.transports.links import NoPath
from fednode.transports.paths import Path, Paths
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
    assert node.tls.gate is not None
    node.tls.gate.close()  # and no longer
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


async def test_a_late_answer_makes_a_place_relayed_if_the_direct_way_answers_no_more(
    relay: Raised,
) -> None:
    """A firewall that shuts drops packets; TCP would notice that after 10 s."""
    where = f"127.0.0.1:{free_ports(1)[0]}"
    node, caller = Node("n1", relay.at), Node("n2", relay.at, reach="auto")
    await node.listen("relay", who)
    wall = Wall(await node.tls.listen(parse("127.0.0.1:0")))
    await wall.stand(where)
    said = NAMES["n2"].encode()
    assert await caller.send(where, b"", GUARD_S, "n1") == said
    assert caller.tls.exits.path(where, "n1") == ("direct", "")
    wall.shut()
    with pytest.raises(Unreachable):
        await caller.send(where, b"", 0.1, "n1")
    await until(lambda: (where, "n1") not in caller._peers)
    assert await caller.send(where, b"", GUARD_S, "n1") == said
    path, why = caller.tls.exits.path(where, "n1")
    assert path == f"relay {relay.at.address}"
    assert why == f"calls to {where} were not answered any more"
    for one in (node, caller):
        await one.close()
    await wall.fall()


async def test_the_next_late_call_looks_again_if_the_relay_had_no_answer_either(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a relay may take longer than it has; fifteen seconds more are too long."""
    where = f"127.0.0.1:{free_ports(1)[0]}"
    node, caller = Node("n1", relay.at), Node("n2", relay.at, reach="auto")
    await node.listen("relay", who)
    wall = Wall(await node.tls.listen(parse("127.0.0.1:0")))
    await wall.stand(where)
    await caller.send(where, b"", GUARD_S, "n1")
    wall.shut()
    relayed, tries = Paths.relayed, list[str]()

    async def slow(self: Paths, endpoint: Endpoint, who: str, why: str) -> Path:
        tries.append(why)
        if len(tries) == 1:
            raise NoPath("no relay answers")
        return await relayed(self, endpoint, who, why)

    monkeypatch.setattr(Paths, "relayed", slow)
    for count in (1, 2):
        with pytest.raises(Unreachable):
            await caller.send(where, b"", 0.1, "n1")
        await until(lambda: not caller.tls.exits._doubts)
        assert len(tries) == count
    assert (where, "n1") not in caller._peers
    assert await caller.send(where, b"", GUARD_S, "n1") == NAMES["n2"].encode()
    assert caller.tls.exits.path(where, "n1")[0] == f"relay {relay.at.address}"
    for one in (node, caller):
        await one.close()
    await wall.fall()


async def test_a_late_answer_changes_nothing_while_the_direct_way_answers(relay: Raised) -> None:
    where, free = f"127.0.0.1:{free_ports(1)[0]}", asyncio.Event()

    async def on_frame(frame: bytes, caller: str) -> bytes:
        if frame:
            await free.wait()
        return b""

    node, caller = Node("n1", relay.at), Node("n2", relay.at, reach="auto")
    await node.listen(where, on_frame)
    await caller.send(where, b"", GUARD_S, "n1")
    held, exit = caller._peers[where, "n1"], caller.tls.exits.open[where, "n1"]
    assert exit.doubted_at < 0
    with pytest.raises(Unreachable):
        await caller.send(where, b"slow", 0.1, "n1")
    doubted_at = exit.doubted_at
    assert doubted_at > 0
    await until(lambda: not caller.tls.exits._doubts)
    assert caller._peers[where, "n1"] is held
    assert caller.tls.exits.path(where, "n1") == ("direct", "")
    with pytest.raises(Unreachable):
        await caller.send(where, b"slow", 0.1, "n1")
    assert exit.doubted_at == doubted_at  # once in AGAIN_S
    free.set()
    for one in (node, caller):
        await one.close()


async def test_a_place_is_connected_at_once_when_a_relay_is_back() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    async with raised(address=address, watch=False) as first:
        caller, node = Node("n2", first.at), Node("n1", first.at)
        await node.listen("relay", who)
        await caller.listen("relay", who)
        await caller.send("relay", b"", GUARD_S, "n1")
    back, links = asyncio.Event(), caller.tls.links
    assert links is not None
    links.regained = back.set
    await until(lambda: links.trouble)
    while not caller.tls.exits.fault("relay", "n1"):
        with pytest.raises(Unreachable):
            await caller.send("relay", b"", GUARD_S, "n1")
    old = caller._peers["relay", "n1"]
    async with raised(address=address, watch=False):
        await asyncio.wait_for(back.wait(), GUARD_S)
        renewed = caller._peers.get(("relay", "n1")) is not old
        assert renewed or caller.tls.exits.open["relay", "n1"].paths  # gRPC may be first
        for one in (node, caller):
            await one.close()


class Wall:
    """A firewall in front of a port, which lets bytes through until it is shut."""

    def __init__(self, port: int) -> None:
        self._port, self._shut = port, asyncio.Event()
        self.harm: Callable[[bytes], bytes] = bytes
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def stand(self, where: str) -> None:
        endpoint = parse(where)
        self._server = await asyncio.start_server(self._pass, endpoint.host, endpoint.port)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inside = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, inside[1]]
        self._tasks.append(asyncio.create_task(self._copy(reader, inside[1], bytes)))
        answers = self._copy(inside[0], writer, lambda data: self.harm(data))
        self._tasks.append(asyncio.create_task(answers))

    async def _copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        passed: Callable[[bytes], bytes],
    ) -> None:
        while data := await reader.read(1 << 16):
            if not self._shut.is_set():
                writer.write(passed(data))

    def shut(self) -> None:
        """Let no byte through any more, and no connection."""
        self._shut.set()
        self._server.close()

    async def fall(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: bytes([*data[:-1], data[-1] ^ 1]),
        lambda data: b"\x17\x03\x03\x00\x20" + bytes(32) + data,
        lambda data: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        lambda data: bytes(data[:5]) * 7,
    ],
)
async def test_bytes_that_were_changed_on_the_way_are_counted_and_blamed_without_a_traceback(
    harm: Callable[[bytes], bytes],
) -> None:
    unhandled = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: unhandled.append(fault))
    where = f"127.0.0.1:{free_ports(1)[0]}"
    node, caller = Node("n1", reach="direct"), Node("n2", reach="direct")
    wall = Wall(int((await node.listen("127.0.0.1:0", who)).split(":")[1]))
    await wall.stand(where)
    said = NAMES["n2"].encode()
    assert await caller.send(where, b"", GUARD_S, "n1") == said
    wall.harm = harm
    while not caller.told:  # then each handshake fails, too
        with contextlib.suppress(Unreachable):
            await caller.send(where, b"", GUARD_S, "n1")
    kind, of, text = caller.told[0]
    assert (kind, of) == ("broken", "n1")
    assert "its bytes were changed on the way" in text
    wall.harm = bytes
    reached = b""
    while reached != said:
        with contextlib.suppress(Unreachable):
            reached = await caller.send(where, b"", GUARD_S, "n1")
        await asyncio.sleep(0)
    for one in (node, caller):
        await one.close()
    wall.shut()
    await wall.fall()
    gc.collect()
    assert unhandled == []


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
