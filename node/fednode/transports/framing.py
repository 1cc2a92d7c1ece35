"""Sizes that all transports share, the size of a frame on the wire, and the count of traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PIECE_BYTES: Final = 1 << 20
"""A frame up to this size travels in one call; a larger frame in pieces of this size."""

FRAME_BYTES_MAX: Final = 64 << 20
REPLY_BYTES_MAX: Final = PIECE_BYTES

# Bytes of a call's HTTP/2 headers once the connection's compression table knows them: 44 ahead of a
# frame, 50 around a reply, as a proxy on loopback counts them (test_framing.py counts again).
_CALL: Final = 47
# Bytes ahead of each message: one HTTP/2 data frame's header and gRPC's prefix. gRPC agrees on data
# frames larger than a piece; flow control splits few of them.
_MESSAGE: Final = 9 + 5


def wire_bytes(frame_bytes: int) -> int:
    """Estimate the TCP payload of one frame, or one reply, in its own direction over gRPC.

    It is the frame, the protobuf field, gRPC prefix and HTTP/2 frame around each piece, and the
    headers of one call. Measured figures differ by less than 1 % or 100 bytes. Opening a connection
    (about 600 bytes), keepalive, TCP and IP are left out. gRPC itself offers no count.
    """
    full = max(0, frame_bytes - 1) // PIECE_BYTES
    last = frame_bytes - full * PIECE_BYTES
    return _CALL + full * _piece_bytes(PIECE_BYTES) + _piece_bytes(last)


def _piece_bytes(size: int) -> int:
    """Return the bytes of a piece, with the tag and length of its protobuf field."""
    length = -(-size.bit_length() // 7)
    return _MESSAGE + (1 + length + size if size else 0)


@dataclass(slots=True)
class Traffic:
    """Messages that went one way, and their bytes; answers are not counted.

    payload: the arrays alone. serialized: whole frames. wire: with gRPC and HTTP/2 (an estimate).
    """

    messages: int = 0
    payload: int = 0
    serialized: int = 0
    wire: int = 0

    def count(self, payload: int, frame: int) -> None:
        """Add one message; payload, frame: its sizes in bytes."""
        self.messages += 1
        self.payload += payload
        self.serialized += frame
        self.wire += wire_bytes(frame)

    def add(self, other: Traffic) -> None:
        """Add all that another record counted."""
        self.messages += other.messages
        self.payload += other.payload
        self.serialized += other.serialized
        self.wire += other.wire
