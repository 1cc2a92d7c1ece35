"""The service that takes frames, whole or in pieces, and the cutting of large frames."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
import grpc.aio

from fednode.transports.base import OnFrame
from fednode.transports.framing import FRAME_BYTES_MAX, PIECE_BYTES, REPLY_BYTES_MAX
from fednode.wire.gen import exchange_pb2

HANDLING_MAX_S: Final = 120.0
PIECE_MAX_S: Final = 30.0
"""Longest pause between two pieces of a frame."""
# Bytes of frames that are being put together: of all senders, and of one key.
ASSEMBLING_BYTES_MAX: Final = 4 * FRAME_BYTES_MAX
ASSEMBLING_PER_KEY: Final = 2 * FRAME_BYTES_MAX
# The same of one key once the node knows how large its prompts are: so many times their bytes, and
# this at least. Nobody has larger frames, because all members exchange arrays of the same shapes.
EXPECTED_TIMES: Final = 4
EXPECTED_MIN: Final = 8 << 20


SERVICE: Final = "fednode.v1.Exchange"
DELIVER, DELIVER_CHUNKS = (f"/{SERVICE}/{name}" for name in ("Deliver", "DeliverChunks"))
# Field 1 of a Frame, length-delimited; and the seven bits of a length that one byte holds.
_TAG: Final = 0x0A
_LOW: Final = 0x7F


class ExchangeService:
    """Hand frames to the node and return the node's replies.

    It is the service of exchange.proto.
    """

    def __init__(self, caller: Callable[[Any], str | None]) -> None:
        """Set up. caller: returns the id behind a call; None if it may call no more."""
        self._caller = caller
        self.on_frame: OnFrame | None = None
        """The node's handler."""
        self._assembling: Counter[str | None] = Counter()
        self._expected = FRAME_BYTES_MAX

    def expect(self, frame_bytes: int) -> None:
        """Keep room for frames of this size, and for no larger ones."""
        self._expected = frame_bytes

    def register(self, server: Any) -> None:
        handlers = {
            "Deliver": grpc.unary_unary_rpc_method_handler(self._answer, opened, wrapped),
            "DeliverChunks": grpc.stream_unary_rpc_method_handler(
                self._deliver_chunks, opened, wrapped
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    async def _deliver_chunks(self, request_iterator: AsyncIterator[bytes], context: Any) -> bytes:
        """Collect the pieces of one frame; refuse too many bytes and too slow pieces."""
        received, size, caller = list[bytes](), 0, self._caller(context)
        clock = asyncio.get_running_loop().time
        end = clock() + HANDLING_MAX_S
        try:
            async with asyncio.timeout(PIECE_MAX_S) as limit:
                async for piece in request_iterator:
                    limit.reschedule(min(clock() + PIECE_MAX_S, end))
                    received.append(piece)
                    self._assembling[caller] += len(piece)
                    size += len(piece)
                    if not piece or self._over(size, caller):
                        await context.abort(
                            grpc.StatusCode.RESOURCE_EXHAUSTED,
                            f"pieces must not be empty, frames of {FRAME_BYTES_MAX:,} bytes and "
                            f"{self._room():,} bytes of frames at a time are the limits",
                        )
            if not received:
                # A stream whose first piece gRPC itself found too large ends here, too. A later one
                # leaves a frame that is cut short; the lengths in its first bytes show that.
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a frame without pieces")
            return await self._answer(b"".join(received), context)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the pieces came too slowly")
            raise
        finally:
            self._assembling[caller] -= size
            self._assembling += Counter()  # forget zeros

    def _over(self, size: int, caller: str | None) -> bool:
        """Tell whether a frame is too large, or all pieces held of its sender or of all callers."""
        return (
            size > FRAME_BYTES_MAX
            or self._assembling.total() > ASSEMBLING_BYTES_MAX
            or (bool(caller) and self._assembling[caller] > self._room())
        )

    def _room(self) -> int:
        """Return the bytes of pieces that one key may leave here."""
        return min(ASSEMBLING_PER_KEY, max(EXPECTED_MIN, EXPECTED_TIMES * self._expected))

    async def _answer(self, frame: bytes, context: Any) -> bytes:
        """Return the node's reply; end the call if the node is too slow or its reply too large."""
        reply, caller = b"", self._caller(context)
        if caller is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "nobody's connection")
        assert self.on_frame is not None
        assert caller is not None  # abort raises
        try:
            async with asyncio.timeout(HANDLING_MAX_S):
                reply = await self.on_frame(frame, caller)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the node took too long")
        if len(reply) > REPLY_BYTES_MAX:
            await context.abort(grpc.StatusCode.INTERNAL, "the reply is too large")
        return reply


async def pieces(frame: bytes) -> AsyncIterator[memoryview]:
    """Yield the pieces of a frame, as fast as flow control lets them go."""
    view = memoryview(frame)
    for start in range(0, len(frame), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]


def wrapped(data: bytes | memoryview) -> bytes:
    """Return a serialized Frame that holds these bytes.

    protobuf writes the same bytes, and takes 2 ms for a mebibyte, in place of 30 us.
    """
    head, length = bytearray([_TAG]), len(data)
    while length > _LOW:
        head.append(length & _LOW | _LOW + 1)
        length >>= 7
    head.append(length)
    return b"".join((head, data)) if data else b""


def opened(message: bytes) -> bytes:
    """Return the bytes in a serialized Frame."""
    return exchange_pb2.Frame.FromString(message).data
