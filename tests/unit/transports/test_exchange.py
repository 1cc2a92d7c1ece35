"""Frames are written without protobuf's class, and look as if it had done it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError

from fednode.transports import exchange
from fednode.transports.exchange import opened, pieces, wrapped
from fednode.transports.framing import PIECE_BYTES
from fednode.transports.grpc import GrpcTransport
from fednode.wire.gen import exchange_pb2
from tests.contract.transport_suite import ANY, GUARD_S, Stuck
from tests.meshes import Mesh


async def echo(frame: bytes, caller: str) -> bytes:
    return b"/" + frame[:16]


def chunked(channel: grpc.aio.Channel) -> Callable[..., Any]:
    """Return the call that carries a frame in pieces, with protobuf's own classes."""
    frame, path = exchange_pb2.Frame, exchange.DELIVER_CHUNKS
    call: Callable[..., Any] = channel.stream_unary(path, frame.SerializeToString, frame.FromString)
    return call


async def chunks(*pieces: bytes) -> AsyncIterator[exchange_pb2.Frame]:
    for piece in pieces:
        yield exchange_pb2.Frame(data=piece)


SIZES = (0, 1, 2, 126, 127, 128, 129, 16_382, 16_383, 16_384, 16_385, 1 << 20, (1 << 21) + 1)


@pytest.mark.parametrize("size", SIZES)
def test_a_frame_is_what_protobuf_writes_and_reads(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"\x0a" * (size % 256)
    written = exchange_pb2.Frame(data=data).SerializeToString()
    assert wrapped(data) == wrapped(memoryview(data)) == written
    assert opened(written) == data


@pytest.mark.parametrize("wrong", [b"\x0a", b"\x0a\x05abc", b"\xff", b"abc"])
def test_bytes_that_are_no_frame_are_refused(wrong: bytes) -> None:
    with pytest.raises(DecodeError):
        opened(wrong)


async def test_pieces_together_are_the_frame() -> None:
    frame = bytes(range(256)) * (3 * PIECE_BYTES // 256) + b"end"
    found = [bytes(one) async for one in pieces(frame)]
    assert [len(one) for one in found] == [PIECE_BYTES] * 3 + [3]
    assert b"".join(found) == frame


async def test_a_key_leaves_no_more_pieces_than_the_mesh_has_prompts_for(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "EXPECTED_MIN", 100)
    a = mesh.transport("a")
    a.expect(200)
    address = await a.listen(ANY, echo)
    deliver = chunked(await mesh.channel("b", address, "a"))
    whole = await deliver(chunks(bytes(400), bytes(400)), timeout=GUARD_S)
    assert whole.data == b"/" + bytes(16)
    with pytest.raises(grpc.aio.AioRpcError) as fault:
        await deliver(chunks(bytes(400), bytes(401)), timeout=GUARD_S)
    assert "800 bytes of frames at a time" in str(fault.value.details())
    a.expect(1000)  # as soon as the node knows more
    await deliver(chunks(bytes(400), bytes(401)), timeout=GUARD_S)


async def silent() -> AsyncIterator[exchange_pb2.Frame]:
    yield exchange_pb2.Frame(data=b"x")
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("pieces", "limit", "said"),
    [
        (silent, "PIECE_MAX_S", "the pieces came too slowly"),
        (lambda: chunks(b"stuck"), "HANDLING_MAX_S", "the node took too long"),
        (lambda: chunks(b"x", b""), "", "pieces must not be empty"),
        (chunks, "", "a frame without pieces"),
    ],
)
async def test_pieces_that_make_no_frame_in_time_end_their_call(
    monkeypatch: pytest.MonkeyPatch,
    pieces: Callable[[], AsyncIterator[exchange_pb2.Frame]],
    limit: str,
    said: str,
) -> None:
    if limit:
        monkeypatch.setattr(exchange, limit, 0.05)
    a, b = GrpcTransport(), GrpcTransport()
    channel = await b.channel(await a.listen(ANY, Stuck()))
    with pytest.raises(grpc.aio.AioRpcError) as fault:
        await chunked(channel)(pieces(), timeout=GUARD_S)
    assert said in str(fault.value.details())
    await channel.close()
    await asyncio.gather(a.close(), b.close())
