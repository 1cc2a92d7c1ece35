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
            found = memoryview(data)
            return found[begin:] if found[:begin] == ahead(tag, length) else None
    return None
