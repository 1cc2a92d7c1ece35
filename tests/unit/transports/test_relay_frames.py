"""Frames of relays: what is read, what is refused, and bytes that are no frame."""

from __future__ import annotations

import asyncio
import random

import pytest

from fednode.errors import FrameError
from fednode.transports import relay_frames as frames
from fednode.wire.gen import relay_pb2 as pb

TICKET = b"t" * frames.TICKET_BYTES
OF_NODES = [
    pb.FromNode(wait=pb.Wait()),
    pb.FromNode(dial=pb.Dial(to="AAAA-BBBB")),
    pb.FromNode(take=pb.Take(ticket=TICKET)),
    pb.FromNode(decline=pb.Decline(ticket=TICKET, why="no")),
    pb.FromNode(pong=pb.Pong()),
    pb.FromNode(revocation=pb.Revocation(proof=b"p")),
]
OF_RELAYS = [
    pb.FromRelay(reply=pb.Reply(code="absent", why="it is away")),
    pb.FromRelay(call=pb.Call(ticket=TICKET, caller="AAAA", source="192.0.2.1")),
    pb.FromRelay(ping=pb.Ping()),
    pb.FromRelay(drain=pb.Drain()),
]


async def test_frames_are_read_one_after_the_other_however_they_are_cut() -> None:
    reader = asyncio.StreamReader()
    for byte in b"".join(map(frames.pack, OF_NODES)):
        reader.feed_data(bytes([byte]))
    reader.feed_eof()
    assert [frames.from_node(await frames.read(reader)) for _ in OF_NODES] == OF_NODES
    assert await frames.read(reader) == b""


def test_what_a_relay_says_is_read() -> None:
    for one in OF_RELAYS:
        assert frames.from_relay(one.SerializeToString()) == one


def test_sentences_are_made_safe_to_show() -> None:
    said = pb.FromRelay(reply=pb.Reply(code="full", why="a\x1b[2Jb" + "c" * 500))
    found = frames.from_relay(said.SerializeToString()).reply.why
    assert "\x1b" not in found
    assert len(found) == frames.WHY_MAX


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (pb.FromRelay(), "says nothing"),
        (pb.FromRelay(reply=pb.Reply(code="maybe")), "which is no answer"),
        (pb.FromRelay(call=pb.Call(ticket=b"short", caller="A")), "a ticket has 5 bytes"),
        (pb.FromRelay(call=pb.Call(ticket=TICKET, caller="A" * 81)), "no id or address"),
        (pb.FromRelay(call=pb.Call(ticket=TICKET, caller="A\n")), "no id or address"),
    ],
)
def test_what_no_relay_says_is_refused(message: pb.FromRelay, text: str) -> None:
    with pytest.raises(FrameError, match=text):
        frames.from_relay(message.SerializeToString())


@pytest.mark.parametrize("head", [b"\0\0", b"\x04\x01", b"\xff\xff"])
async def test_a_frame_without_bytes_or_with_too_many_is_refused(head: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(head)
    with pytest.raises(FrameError, match="1 to 1,024"):
        await frames.read(reader)


def test_a_message_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(FrameError, match="at most 1,024"):
        frames.pack(pb.FromNode(revocation=pb.Revocation(proof=bytes(1100))))


def test_mutated_frames_are_read_or_refused_and_nothing_else() -> None:
    draw = random.Random(44)
    whole = [one.SerializeToString() for one in (*OF_NODES, *OF_RELAYS)]
    for _ in range(20_000):
        data = bytearray(draw.choice(whole) or b"\0")
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        data += draw.randbytes(draw.randrange(3))
        for read in (frames.from_node, frames.from_relay):
            try:
                found = read(bytes(data))
            except FrameError:
                continue
            assert read(found.SerializeToString()) == found
