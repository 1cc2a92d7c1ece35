"""The bytes of a relay's streams: what a key pays for them, and how many a stream may have."""

from __future__ import annotations

import asyncio

import pytest

from fednode.transports.carrier import PIECE, Carrier, Counts
from fednode.transports.session import Ends


class Side:
    """An end of a stream that has said something, and keeps what it is told."""

    def __init__(self, said: bytes = b"") -> None:
        self.said, self.told, self.closed = said, b"", False

    async def read(self, n: int = -1) -> bytes:
        """Return the next bytes; wait for ever after the last one."""
        if not self.said:
            await asyncio.Event().wait()
        data, self.said = self.said[:n], self.said[n:]
        return data

    def write(self, data: bytes) -> None:
        """Keep bytes."""
        self.told += data

    async def drain(self) -> None:
        """Wait for nothing."""

    def close(self) -> None:
        """Note that the end is closed."""
        self.closed = True


async def test_a_key_pays_for_its_bytes_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    carrier = Carrier(Counts(), mbit=8.0)  # a megabyte a second
    monkeypatch.setattr(asyncio, "sleep", sleep)
    for _ in range(4):
        await carrier._pay("a", 500_000)
    await carrier._pay("b", 1)
    assert slept == pytest.approx([0.5, 1.0, 1.5, 2.0], abs=0.05)


async def test_a_stream_ends_before_an_end_sends_more_than_it_may() -> None:
    counts, caller, called = Counts(), Side(b"x" * (3 * PIECE)), Side(b"y" * PIECE)
    sides = ("a", Ends(caller, caller)), ("b", Ends(called, called))
    async with asyncio.timeout(180):
        await Carrier(counts, 0.0).carry(*sides, 2 * PIECE)
    assert called.told == b"x" * (2 * PIECE)
    assert caller.told == b"y" * PIECE
    assert counts.bytes == 3 * PIECE
