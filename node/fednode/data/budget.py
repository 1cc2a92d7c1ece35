"""Memory for decoding images: how much all threads together may take at a time.

The size of an image is known from the head of its file, before its pixels are decoded. A thread
reserves what decoding will take, and waits while others hold too much. An image that does not fit
by itself is refused. The head of a file is read within a limit of its own, because a decoder keeps
its texts and tags.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

from fednode.data.pixels import Unusable
from fednode.freed import trim

MIB: Final = 1 << 20
ROOM: Final = 480 * MIB
"""Bytes for all images that are decoded at a time, with their copies."""
LARGE: Final = 64 * MIB
"""So many bytes are given back to the system before others take them: glibc keeps what a thread
freed, and no other thread can use it."""
HEADS: Final = (256 << 10, 8 * MIB)
"""Bytes that may be read of a file before its size in pixels is known: of most files, of any."""
HEAD_COPIES: Final = 60
"""Bytes of memory for a byte of a head: a tag of 8 bytes becomes objects of some 400."""

Found = TypeVar("Found")


class TooMuch(Unusable):
    """A file whose head has more bytes than may be read of it."""


class Budget:
    """A number of bytes that threads share, in the order in which they ask."""

    def __init__(self, size: int = ROOM) -> None:
        self.size, self._used = size, 0
        self._turn, self._change = threading.Lock(), threading.Condition()

    @contextmanager
    def taken(self, need: int, what: str) -> Iterator[None]:
        """Hold bytes for the block, after waiting for them; raise Unusable if they never fit.

        what: says what needs them. A thread holds one part at a time, so none waits for another's.
        """
        if need > self.size:
            raise Unusable(
                f"too large: {what} takes {need // MIB:,} MiB of memory to decode, and the limit "
                f"is {self.size // MIB}"
            )
        with self._turn, self._change:  # who asks for much is not overtaken for ever
            self._change.wait_for(lambda: self._used + need <= self.size)
            self._used += need
        try:
            yield
        finally:
            if need >= LARGE:
                trim()
            with self._change:
                self._used -= need
                self._change.notify_all()


SHARED: Final = Budget()
"""The budget of this process."""


class Head(io.FileIO):
    """A file of which only so many bytes can be read as `limit` allows; before that, all."""

    _left: int | None = None

    def limit(self, most: int | None) -> None:
        """Let so many further bytes be read; None: all."""
        self._left = most

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; raise TooMuch beyond the limit."""
        count = super().readinto(buffer) or 0
        self._count(count)
        return count

    def readall(self) -> bytes:
        """Return the rest; raise TooMuch beyond the limit."""
        if self._left is None:
            return super().readall()
        content = super().read(self._left + 1) or b""
        self._count(len(content))
        return content

    def _count(self, count: int) -> None:
        if self._left is not None:
            self._left -= count
            if self._left < 0:
                raise TooMuch(f"too large: its tags and texts have over {HEADS[-1] // MIB} MiB")


def with_head(file: io.BufferedReader, read: Callable[[], Found]) -> Found:
    """Return what `read` makes of the head of a file that was opened as a Head.

    The file is at its begin, and `read` must not read pixels. Afterwards all of it can be read.
    Raise TooMuch if the head is too long.
    """
    raw = cast("Head", file.raw)
    for limit in HEADS:
        file.seek(0)
        raw.limit(limit)
        with SHARED.taken(limit * HEAD_COPIES, "the head of the file"):
            try:
                head = read()
            except TooMuch:
                if limit == HEADS[-1]:
                    raise
                continue
        raw.limit(None)
        return head
    raise AssertionError("the last limit ends the loop")
