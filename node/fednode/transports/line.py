"""One connection as the meter sees it: its TLS records, HTTP/2 frames and calls in progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from fednode.transports.frames import Frames
from fednode.transports.meter import CALL_BYTES, Account

DATA, HEADERS, RST, CONTINUATION = 0, 1, 3, 9
HEADED, CALLING, ENDING = {HEADERS, CONTINUATION}, {DATA, HEADERS, RST}, {DATA, HEADERS}
END_STREAM: Final = 1
SMALL: Final = 1024
"""A frame with less than so many bytes costs as much as its bytes do not tell."""
RECORD_BYTES: Final = 22
"""Bytes that TLS adds to each record: a head, a tag and a kind."""
FIELD_BYTES: Final = 64
"""So many bytes of a header block cost as much as a small frame."""
HEADER_BYTES_MAX: Final = 32 << 10
"""gRPC refuses the calls of longer header blocks, and reads them to their end."""
CALL_S: Final = 45.0
"""How long a call may stay unfinished that did not send a whole piece; see `overdue`. Longer than
the service that takes frames waits for a piece, so that its own answer comes first."""
PIECES_S: Final = 150.0
"""How long any call may stay unfinished: longer than a frame may take in pieces."""
VISIT_BYTES_MAX: Final = 32 << 10
"""Bytes that a visitor may send on one connection; an enrolment needs less than 4 KiB."""
VISIT_FRAMES_MAX: Final = 100


class Flood(Exception):
    """A connection says more than any correct node says."""


class Crumbled(Exception):
    """A relay passes a stream on in many small pieces, which costs the other end no blame."""


class Call:
    """A call that has no answer yet. finished: whether the caller said all that it says."""

    __slots__ = ("began", "finished", "size")

    def __init__(self, began: float) -> None:
        self.began, self.size, self.finished = began, 0, False


class Line:
    """One connection of an account.

    serving: the other end calls this node; otherwise it answers this node's calls. visit: the other
    end is a visitor, which says little. carrier: the account of the relay that passes the bytes on;
    the size of the pieces is its doing.
    """

    def __init__(
        self,
        account: Account,
        clock: Callable[[], float],
        serving: bool,
        visit: bool = False,
        carrier: Account | None = None,
    ) -> None:
        self._account, self._clock = account, clock
        self._carrier = carrier or account
        self._serving, self._visit = serving, visit
        self._inwards, self._outwards = Frames(preface=serving), Frames(preface=False)
        self._block = 0
        self._newest = 0
        self._size, self._frames = 0, 0
        self._calls: dict[int, Call] = {}
        account.lines += 1

    def close(self) -> None:
        """Give back what the connection holds of the account."""
        for stream in tuple(self._calls):
            self._end(stream)
        self._account.lines -= 1

    def free(self) -> bool:
        """Tell whether something may be read at once."""
        account, carrier = self._account, self._carrier
        return account.free() and (carrier is account or carrier.free())

    async def permit(self) -> None:
        """Wait until something may be read; raise Flood or Crumbled if that takes too long."""
        account, carrier = self._account, self._carrier
        while pause := max(account.pause(self._clock()), carrier.pause(self._clock())):
            if account.floods(self._clock()):
                raise Flood("it keeps sending more calls, frames or records than a node needs")
            if carrier.floods(self._clock()):
                raise Crumbled("the relay passes streams on in too many small pieces")
            await asyncio.sleep(pause)

    def sealed(self, size: int) -> None:
        """Count bytes that came over the wire, still in TLS.

        Records are counted by what TLS adds to them: `came` takes the plain bytes off again. So
        records without plain bytes, such as key updates, count too.
        """
        account = self._account
        account.size += size
        account.records += size / RECORD_BYTES
        self._carrier.records += size < SMALL

    def came(self, data: bytes) -> None:
        """Count plain bytes that came from the other end; raise Flood for what no node says."""
        account, size = self._account, len(data)
        account.records = max(0.0, account.records - size / RECORD_BYTES)
        if self._visit:
            self._size += size
            if self._size > VISIT_BYTES_MAX:
                raise Flood(f"a visitor sent more than {VISIT_BYTES_MAX:,} bytes")
        serving, frames = self._serving, self._inwards.feed(data)
        self._frames += len(frames)
        for size, kind, flags, stream in frames:
            if size < SMALL:
                account.frames += 1
            if kind in HEADED:
                self._block = size + (self._block if kind == CONTINUATION else 0)
                account.frames += size / FIELD_BYTES
                if self._block > HEADER_BYTES_MAX:
                    raise Flood(f"a header block of more than {HEADER_BYTES_MAX:,} bytes")
            if serving and kind in CALLING:
                self._note(kind, flags, stream, size)
        if self._visit and self._frames > VISIT_FRAMES_MAX:
            raise Flood(f"a visitor sent more than {VISIT_FRAMES_MAX} frames")

    def went(self, data: bytes) -> None:
        """Note which calls plain bytes to the other end answer."""
        if self._serving:
            for _, kind, flags, stream in self._outwards.feed(data):
                if kind == RST or (flags & END_STREAM and kind in ENDING):
                    self._end(stream)

    def overdue(self) -> bool:
        """Tell whether a call stays unfinished for too long.

        A message, or the next piece of a frame, comes within CALL_S, so a call that did not
        send CALL_BYTES by then is neither.
        """
        now = self._clock()
        return any(
            now - call.began > (PIECES_S if call.size >= CALL_BYTES else CALL_S)
            for call in self._calls.values()
            if not call.finished
        )

    def _note(self, kind: int, flags: int, stream: int, size: int) -> None:
        """Note a frame of a call."""
        if kind == RST:
            self._end(stream)
            return
        if kind == HEADERS and stream > self._newest:
            self._newest = stream
            self._calls[stream] = Call(self._clock())
            self._account.calls += 1
            self._account.unfinished_calls += 1
        call = self._calls.get(stream)
        if call is None:
            return
        if kind == DATA:
            before, call.size = call.size, min(call.size + size, CALL_BYTES)
            self._account.unfinished_bytes += call.size - before
        call.finished = call.finished or bool(flags & END_STREAM)

    def _end(self, stream: int) -> None:
        call = self._calls.pop(stream, None)
        if call is not None:
            self._account.unfinished_calls -= 1
            self._account.unfinished_bytes -= call.size
