"""Put bytes into a protobuf field, and take them out of it again, without protobuf's copies.

protobuf's classes copy the bytes of a field two or three times. A field of bytes is its tag, its
length in groups of seven bits (the lowest group first), and the bytes.
"""

from __future__ import annotations


def ahead(tag: bytes, length: int) -> bytes:
    """Return what stands ahead of so many bytes in a field: the tag and the length."""
    written = bytearray(tag)
    while length > 0x7F:
        written.append(length & 0x7F | 0x80)
        length >>= 7
    written.append(length)
    return bytes(written)


def inside(tag: bytes, data: bytes | memoryview) -> memoryview | None:
    """Return the bytes in a field, as a view, if the field fills the data to its end.

    Return None for any other data, also if the length has more groups than it needs.
    """
    for groups in range(1, 11):
        begin = len(tag) + groups
        length = len(data) - begin
        if length >= 0 and (length.bit_length() or 1) in range(7 * groups - 6, 7 * groups + 1):
            content = memoryview(data)
            return content[begin:] if content[:begin] == ahead(tag, length) else None
    return None


def at_most(data: bytes, most: int) -> bool:
    """Tell whether a serialized message has at most so many fields, nested ones not counted.

    protobuf makes an object of each entry of a repeated field, which takes far more memory than an
    empty entry has bytes. So a message is counted before it is parsed. False also for bytes that
    are no fields, and for groups, which no message of fednode has.
    """
    if len(data) <= 2 * most:
        return True  # a field has two bytes at least
    at, end = 0, len(data)
    for _ in range(most):
        if at == end:
            return True
        tag, at = _whole(data, at)
        kind = tag & 7
        if kind == 2:
            length, at = _whole(data, at)
            at += length
        elif kind == 0:
            _, at = _whole(data, at)
        else:
            at += {1: 8, 5: 4}.get(kind, end)
        if at > end:
            return False
    return at == end


def _whole(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place and the place behind it; a place behind the end for none."""
    number = 0
    for place in range(at, min(at + 10, len(data))):
        number |= (data[place] & 0x7F) << 7 * (place - at)
        if data[place] < 0x80:
            return number, place + 1
    return 0, len(data) + 1
