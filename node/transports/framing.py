"""Sizes that every transport shares, and what a frame costs on the wire."""

from __future__ import annotations

from typing import Final

PIECE_BYTES: Final = 1 << 20
"""A frame up to this size travels in one call; a larger one in pieces of it."""

FRAME_BYTES_MAX: Final = 64 << 20
REPLY_BYTES_MAX: Final = PIECE_BYTES

_HTTP2_HEADER: Final = 9
_HTTP2_PAYLOAD_MAX: Final = 16384
_GRPC_PREFIX: Final = 5
# HEADERS frames with a warm compression table, and the pings and window updates of one call,
# counted by a proxy on loopback (tests/unit/transports/test_framing.py does it again).
_CALL: Final = 90


def wire_bytes(frame_bytes: int) -> int:
    """Estimate the TCP payload that one frame costs in its own direction, over gRPC.

    The frame, the protobuf field and gRPC prefix around each piece of it, HTTP/2 data frames, and
    the headers of one call. Left out: opening a connection, keepalive, acknowledgements, TCP and
    IP headers. A transport cannot count these bytes itself: gRPC does not show its sockets.
    """
    total = _CALL
    left = frame_bytes
    while True:
        piece = min(left, PIECE_BYTES)
        message = _GRPC_PREFIX + (1 + _varint_bytes(piece) + piece if piece else 0)
        data_frames = -(-message // _HTTP2_PAYLOAD_MAX)
        total += message + data_frames * _HTTP2_HEADER
        left -= piece
        if left <= 0:
            return total


def _varint_bytes(value: int) -> int:
    return max(1, -(-value.bit_length() // 7))
