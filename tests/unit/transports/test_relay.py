"""The relay: who is connected with whom, within which bounds, and who is not."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fednode.errors import FrameError, Unreachable
from fednode.transports import relay as module
from fednode.transports import relay_frames as frames
from fednode.transports.carrier import PIECE
from fednode.transports.links import Links, NoPath
from fednode.transports.relay import DIALS_S, SILENT_S
from fednode.transports.session import Ends, Inner
from fednode.wire.gen import relay_pb2 as pb
from tests.unit.identity.people import revocation
from tests.unit.transports.relays import (
    GUARD_S,
    HELD,
    NAMES,
    Node,
    Raised,
    asked,
    emptied,
    key_of,
    links_of,
    raised,
    until,
)


@pytest.fixture
async def relay() -> AsyncIterator[Raised]:
    async with raised(watch=False) as one:
        yield one
        emptied()


class Waiting:
    """A node that waits at a relay. calls: the streams that it took, with the caller named."""

    def __init__(self, name: str, relay: Raised) -> None:
        self.links = links_of(name, relay.at)
        self.calls: list[tuple[Ends, str]] = []
        self.over = asyncio.Event()

    async def __aenter__(self) -> Waiting:
        self.links.wait(self.answer)
        await until(lambda: self.links.links[0].up)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.over.set()
        await self.links.close()

    async def answer(self, ends: Ends, relay: str, caller: str) -> None:
        self.calls.append((ends, caller))
        await self.over.wait()


async def dialled(links: Links, to: str) -> tuple[Ends | None, str, str]:
    return await asked(links, pb.FromNode(dial=pb.Dial(to=NAMES[to])))


async def exactly(ends: Ends, size: int) -> bytes:
    async with asyncio.timeout(GUARD_S):
        return await frames._exactly(ends.reader, size)


@pytest.mark.parametrize("size", [1, PIECE, 3 * 1024 * 1024 + 1])
async def test_bytes_come_out_as_they_went_in_both_ways(relay: Raised, size: int) -> None:
    caller = links_of("n2", relay.at)
    async with Waiting("n1", relay) as node:
        ours, via = await caller.dial(NAMES["n1"])
        assert via == relay.at.address
        theirs, named = node.calls[0]
        assert named == NAMES["n2"]
        there, back = (bytes(range(256)) * (1 + size // 256))[:size], b"\xff" * size
        for ends, data in ((ours, there), (theirs, back)):
            ends.writer.write(data)
        came = await asyncio.gather(exactly(theirs, size), exactly(ours, size))
        assert list(came) == [there, back]
        assert relay.relay.counts.bytes == 2 * size
        assert (relay.relay.waiting, relay.relay.streams) == (1, 1)
        ours.writer.close()
        assert await exactly(theirs, 1) == b""
        await until(lambda: not relay.relay.streams)
    assert not relay.relay._per_key
    assert not relay.relay._per_pair
    assert not relay.relay._calls


async def test_nobody_is_found_who_does_not_wait(relay: Raised) -> None:
    _, code, text = await dialled(links_of("n2", relay.at), "n1")
    assert code == "absent"
    assert f"{NAMES['n1']} does not wait here" in text
    assert relay.relay.counts.refused == {"absent": 1}


async def test_a_call_that_is_not_taken_ends_in_silent(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TICKET_S", 0.05)
    ends, code, _ = await asked(links_of("n1", relay.at), pb.FromNode(wait=pb.Wait()))
    assert ends
    assert code == "ok"
    assert (await dialled(links_of("n2", relay.at), "n1"))[1] == "silent"
    call = frames.from_relay(await frames.read(ends.reader)).call
    assert call.caller == NAMES["n2"]
    late = pb.FromNode(take=pb.Take(ticket=call.ticket))
    assert (await asked(links_of("n1", relay.at), late))[1] == "refused"
    ends.writer.close()


async def test_a_ticket_is_for_one_key_and_once(relay: Raised) -> None:
    waiting, _, _ = await asked(links_of("n1", relay.at), pb.FromNode(wait=pb.Wait()))
    assert waiting
    dial = asyncio.ensure_future(dialled(links_of("n2", relay.at), "n1"))
    call = frames.from_relay(await frames.read(waiting.reader)).call
    take = pb.FromNode(take=pb.Take(ticket=call.ticket))
    assert (await asked(links_of("n3", relay.at), take))[1] == "refused"
    taken, code, _ = await asked(links_of("n1", relay.at), take)
    assert (code, (await dial)[1]) == ("ok", "ok")
    assert (await asked(links_of("n1", relay.at), take))[1] == "refused"
    assert taken
    for ends in (taken, waiting):
        ends.writer.close()


async def test_who_declines_a_call_tells_why(relay: Raised) -> None:
    links = links_of("n1", relay.at, declined=lambda id: f"not now, {id[:4]}")
    links.wait(lambda *_: asyncio.Event().wait())  # type: ignore[arg-type]
    await until(lambda: links.links[0].up)
    with pytest.raises(NoPath, match=f"not now, {NAMES['n2'][:4]}"):
        await links_of("n2", relay.at).dial(NAMES["n1"])
    await links.close()


async def test_a_newer_connection_of_a_key_takes_the_place_of_the_older(relay: Raised) -> None:
    older, _, _ = await asked(links_of("n1", relay.at), pb.FromNode(wait=pb.Wait()))
    newer, _, _ = await asked(links_of("n1", relay.at), pb.FromNode(wait=pb.Wait()))
    assert older
    assert newer
    assert await exactly(older, 1) == b""
    assert relay.relay.waiting == 1
    newer.writer.close()


@pytest.mark.parametrize("bound", ["PAIR_MAX", "KEY_MAX", "STREAMS_MAX"])
async def test_streams_have_bounds(
    relay: Raised, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, bound, 2)
    caller = links_of("n2", relay.at)
    async with Waiting("n1", relay):
        held = [await caller.dial(NAMES["n1"]) for _ in range(2)]
        HELD.extend(ends for ends, _ in held)
        assert (await dialled(caller, "n1"))[1] == "full"
        held[0][0].writer.close()
        await until(lambda: relay.relay.streams < 2)
        assert (await dialled(caller, "n1"))[1] == "ok"


async def test_a_key_dials_so_often_and_no_more(relay: Raised) -> None:
    for _ in range(int(DIALS_S)):
        with pytest.raises(module._Refused, match="does not wait here"):
            relay.relay._admit(NAMES["n2"], NAMES["n1"])
    with pytest.raises(module._Refused, match="may dial 20 times a second"):
        relay.relay._admit(NAMES["n2"], NAMES["n1"])
    with pytest.raises(module._Refused, match="does not wait here"):
        relay.relay._admit(NAMES["n3"], NAMES["n1"])


async def test_a_revoked_key_loses_what_it_has(relay: Raised) -> None:
    """A node that waits passes the revocation on."""
    proof = revocation("n2", key_of("n2"), issued=int(time.time()))
    async with Waiting("n1", relay) as node, Waiting("n2", relay) as revoked:
        ours, _ = await revoked.links.dial(NAMES["n1"])
        teller = links_of("n3", relay.at, proofs=lambda: [proof, b"wrong"])
        teller.wait(node.answer)
        await until(lambda: relay.trust.is_revoked(NAMES["n2"]))
        relay.relay.look(asyncio.get_running_loop().time())
        assert await exactly(ours, 1) == b""
        await until(lambda: relay.relay.waiting == 2)
        _, code, text = await dialled(links_of("n2", relay.at), "n1")
        assert code == ""
        assert "does not admit this node's key" in text
        assert "revoked" in relay.refused[-1][2]
        await teller.close()


async def test_streams_to_a_revoked_key_end(relay: Raised) -> None:
    proof = revocation("n2", key_of("n2"), issued=int(time.time()))
    async with Waiting("n1", relay) as node, Waiting("n2", relay) as revoked:
        ours, _ = await node.links.dial(NAMES["n2"])
        assert len(revoked.calls) == 1
        relay.trust.take_revocation(proof)
        relay.relay.look(asyncio.get_running_loop().time())
        assert await exactly(ours, 1) == b""
        await until(lambda: not relay.relay.streams)


async def test_a_key_pays_for_what_it_sends_and_not_for_what_it_gets() -> None:
    async with raised(watch=False, mbit=8.0) as relay, Waiting("n1", relay) as node:
        ours, _ = await links_of("n2", relay.at).dial(NAMES["n1"])
        ours.writer.write(bytes(1000))
        assert await exactly(node.calls[0][0], 1000) == bytes(1000)
        await until(lambda: relay.relay._carrier._paid)
        assert set(relay.relay._carrier._paid) == {NAMES["n2"]}
        ours.writer.close()
        await until(lambda: not relay.relay.streams)
    emptied()


async def test_a_stranger_gets_nothing(relay: Raised) -> None:
    stranger = links_of("n39", relay.at)
    relay.trust.listed = {name: id for name, id in NAMES.items() if name != "n39"}
    _, code, text = await dialled(stranger, "n1")
    assert (code, "does not admit" in text) == ("", True)
    assert relay.refused[-1][0] == "certificate"


async def test_who_is_silent_no_longer_waits(relay: Raised) -> None:
    ends, _, _ = await asked(links_of("n1", relay.at), pb.FromNode(wait=pb.Wait()))
    assert ends
    now = asyncio.get_running_loop().time()
    relay.relay.look(now + SILENT_S - 1)
    assert frames.from_relay(await frames.read(ends.reader)).WhichOneof("what") == "ping"
    relay.relay.look(now + SILENT_S + 1)
    assert await exactly(ends, 1) == b""
    await until(lambda: not relay.relay.waiting)


async def test_a_relay_that_stops_tells_all_and_lets_streams_end(relay: Raised) -> None:
    caller, drained = links_of("n2", relay.at), list[str]()
    async with Waiting("n1", relay) as node:
        node.links.drained = drained.append
        ours, _ = await caller.dial(NAMES["n1"])
        stopping = asyncio.ensure_future(relay.relay.drain())
        await until(lambda: drained)
        assert node.links.links[0].draining
        assert (await dialled(caller, "n1"))[1] == "draining"
        assert (await asked(links_of("n3", relay.at), pb.FromNode(wait=pb.Wait())))[1] == "draining"
        ours.writer.write(b"still carried")
        assert await exactly(node.calls[0][0], 13) == b"still carried"
        assert not stopping.done()
        ours.writer.close()
        await asyncio.wait_for(stopping, GUARD_S)


@pytest.mark.parametrize("sent", [b"\0\0", b"\xff\xff", b"\0\x05hello", b""])
async def test_what_is_no_frame_ends_a_connection(relay: Raised, sent: bytes) -> None:
    links = links_of("n1", relay.at)
    frame = frames.pack
    frames.pack = lambda _: sent  # type: ignore[assignment]
    try:
        asking = asyncio.ensure_future(asked(links, pb.FromNode(wait=pb.Wait())))
        if sent:
            await until(lambda: relay.relay.counts.refused)
        else:
            await until(lambda: relay.relay._asking)
            links.links[0].cut()
        assert (await asking)[1] == ""
    finally:
        frames.pack = frame
    assert relay.relay.waiting == 0


async def test_connections_that_say_nothing_have_a_bound(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASKING_MAX", 0)
    assert (await dialled(links_of("n2", relay.at), "n1"))[1] == "full"
    assert not relay.relay._asking
    with pytest.raises(FrameError):
        frames.from_node(b"")


async def test_flipped_bits_break_a_stream_and_never_come_out(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile relay flips one bit of each stream: the call fails, and no wrong frame is read."""
    draw, heard = random.Random(44), set[bytes]()

    async def hear(frame: bytes, caller: str) -> bytes:
        heard.add(frame)
        return frame

    node, caller = Node("n1", relay.at), Node("n2", relay.at)
    await node.listen("relay", hear)
    write, frame = Inner.write, draw.randbytes(4000)
    flipped = [0]

    def lie(self: Inner, data: bytes) -> None:
        if len(data) > 3000 and not flipped[0]:
            flipped[0], wrong = 1, bytearray(data)
            wrong[draw.randrange(len(wrong))] ^= 1 << draw.randrange(8)
            data = bytes(wrong)
        write(self, data)

    monkeypatch.setattr(Inner, "write", lie)
    for _ in range(20):
        flipped[0] = 0
        caller._renew(("relay", "n1"), True)  # gRPC would wait before it connects again
        while not flipped[0]:
            with contextlib.suppress(Unreachable):
                assert await caller.send("relay", frame, GUARD_S, "n1") == frame
    assert heard <= {frame}
    for one in (node, caller):
        await one.close()


async def test_a_stream_that_is_replayed_brings_nothing(
    relay: Raised, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile relay says a caller's bytes to the called node once more: no frame comes twice."""
    heard, said = list[bytes](), list[bytes]()

    async def hear(frame: bytes, caller: str) -> bytes:
        heard.append(frame)
        return frame

    node, caller = Node("n1", relay.at), Node("n2", relay.at)
    await node.listen("relay", hear)
    copy = relay.relay._carrier._copy

    async def listen(id: str, source: Ends, target: Ends, most: int) -> None:
        if id == NAMES["n2"]:
            source = Ends(_Recorder(source.reader, said), source.writer)
        await copy(id, source, target, most)

    monkeypatch.setattr(relay.relay._carrier, "_copy", listen)
    assert await caller.send("relay", b"once", GUARD_S, "n1") == b"once"
    monkeypatch.undo()
    assert said
    ends, _ = await links_of("n2", relay.at).dial(NAMES["n1"])
    for data in tuple(said):
        ends.writer.write(data)
    await ends.writer.drain()
    while await ends.reader.read(1 << 16):
        pass
    ends.writer.close()
    assert heard == [b"once"]
    for one in (node, caller):
        await one.close()


class _Recorder:
    """A reader that notes what it read."""

    def __init__(self, reader: Any, said: list[bytes]) -> None:
        self._reader, self._said = reader, said

    async def read(self, n: int = -1) -> bytes:
        data: bytes = await self._reader.read(n)
        self._said.append(data)
        return data
