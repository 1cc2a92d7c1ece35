"""Whole numbers as protobuf writes them: seven bits a byte, the lowest first."""

from __future__ import annotations

from fednode.errors import FrameError


def written(value: int) -> bytes:
    """Return a number that is not negative as protobuf writes it."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def read(body: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it.

    Raise FrameError if the number is cut short or has more than 64 bits.
    """
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(body):
            raise FrameError("the envelope is cut short")
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise FrameError("the envelope holds a number of more than 64 bits")
