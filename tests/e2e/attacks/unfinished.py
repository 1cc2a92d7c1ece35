"""Calls that never end: each stream as full as flow control lets it be."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from fednode.transports.exchange import DELIVER, DELIVER_CHUNKS, wrapped
from tests.e2e.attacks.http2 import (
    ACK,
    DATA,
    END_HEADERS,
    FRAME_BYTES,
    HEADERS,
    PING,
    RST,
    SETTINGS,
    WINDOW,
    WINDOW_BYTES,
    Wire,
    frame,
    request,
    rest,
)

STREAMS: Final = 64
MESSAGE_BYTES: Final = (1 << 20) - 100
WHOLE_BYTES: Final = 10
INITIAL_WINDOW: Final = 4
PIECE_BYTES: Final = 60_000


class Stuffing:
    """Fill streams up to the windows that the other end grants."""

    def __init__(self, wire: Wire, path: str, said: bytes, most: int) -> None:
        """Begin the streams. said: what each one says again and again; most: bytes of a stream."""
        self._wire, self._most = wire, most
        wire.heard = True
        self._said, self._period = said + said[:FRAME_BYTES], len(said)
        self._initial = self._connection = WINDOW_BYTES
        self._granted = dict.fromkeys(range(1, 2 * STREAMS, 2), 0)
        self._sent = dict.fromkeys(self._granted, 0)
        self._left, self._acknowledged = b"", False
        wire.send(frame(WINDOW, payload=struct.pack(">I", 1 << 30)))
        for stream in self._sent:
            wire.send(frame(HEADERS, END_HEADERS, stream, request(path)))

    def hear(self) -> None:
        """Read the other end's frames: windows, settings, pings, and calls that it ended."""
        self._left += self._wire.drain()
        while len(self._left) >= 9:
            length = int.from_bytes(self._left[:3], "big")
            if len(self._left) < 9 + length:
                return
            kind, flags = self._left[3], self._left[4]
            stream = int.from_bytes(self._left[5:9], "big")
            self._take(kind, flags, stream, self._left[9 : 9 + length])
            self._left = self._left[9 + length :]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at : at + 6])
                if name == INITIAL_WINDOW:
                    self._initial = value
            if self._acknowledged:  # the first ones by `Wire.begin`; gRPC closes at a second time
                self._wire.send(frame(SETTINGS, ACK))
            self._acknowledged = True
        elif kind == PING and not flags & ACK:
            self._wire.send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW:
            (more,) = struct.unpack(">I", payload)
            if stream:
                self._granted[stream] = self._granted.get(stream, 0) + more
            else:
                self._connection += more
        elif kind == RST:
            self._sent.pop(stream, None)

    def fill(self) -> int:
        """Send what the windows allow; return how many bytes that was."""
        moved = 0
        for stream, sent in tuple(self._sent.items()):
            window = self._initial + self._granted[stream] - sent
            room = min(window, self._connection, FRAME_BYTES, self._most - sent)
            if room > 0:
                at = sent % self._period
                self._wire.send(frame(DATA, 0, stream, self._said[at : at + room]))
                self._sent[stream] += room
                self._connection -= room
                moved += room
        return moved


def message(data: bytes) -> bytes:
    """Return a message as gRPC cuts it: no compression, and the length ahead."""
    return b"\0" + struct.pack(">I", len(data)) + data


def stuff(wire: Wire, path: str, said: bytes, most: int = 1 << 30) -> Iterator[int]:
    stuffing = Stuffing(wire, path, said, most)
    while True:
        stuffing.hear()
        moved = stuffing.fill()
        yield moved
        if not moved:
            rest(0.05)


def unfinished(wire: Wire) -> Iterator[int]:
    """Send all of each message but its last bytes."""
    return stuff(wire, DELIVER, message(bytes(MESSAGE_BYTES)), MESSAGE_BYTES - 100)


def surplus(wire: Wire) -> Iterator[int]:
    """Send a whole small message, and then more and more behind it."""
    return stuff(wire, DELIVER, message(bytes(WHOLE_BYTES)) + bytes(1 << 20))


def unfinished_pieces(wire: Wire) -> Iterator[int]:
    """Send frames in pieces that never end."""
    piece = wrapped(bytes(PIECE_BYTES))
    return stuff(wire, DELIVER_CHUNKS, message(piece))
