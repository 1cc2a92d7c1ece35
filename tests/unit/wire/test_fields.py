"""A field of bytes looks as if protobuf had written it, and is found without a copy."""

from __future__ import annotations

import pytest

from fednode.wire.fields import ahead, at_most, inside
from fednode.wire.gen import exchange_pb2

TAG = b"\x0a"
"""Of field 1 of a Frame."""
SIZES = (0, 1, 2, 126, 127, 128, 129, 16_382, 16_383, 16_384, 16_385, 1 << 20, (1 << 21) + 1)


@pytest.mark.parametrize("size", SIZES)
def test_a_field_is_what_protobuf_writes_and_is_found_again(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + TAG * (size % 256)
    field = ahead(TAG, size) + data
    written = exchange_pb2.Frame(data=data).SerializeToString()
    assert field == (written or b"\x0a\x00")  # protobuf leaves an empty field out
    for given in (field, memoryview(field)):
        found = inside(TAG, given)
        assert found is not None
        assert bytes(found) == data


def test_the_bytes_inside_are_a_view() -> None:
    field = bytearray(ahead(TAG, 3) + b"abc")
    found = inside(TAG, memoryview(field))
    assert found is not None
    field[2] = ord("x")
    assert bytes(found) == b"xbc"


@pytest.mark.parametrize("length", [2**32 - 1, 2**63, 2**64 - 1])
def test_long_lengths_are_written_as_protobuf_writes_its_numbers(length: int) -> None:
    number = exchange_pb2.Envelope(round=length).SerializeToString()
    assert ahead(number[:1], length) == number


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x0a",
        b"\x0b\x03abc",
        b"\x0a\x02abc",
        b"\x0a\x04abc",
        b"\x0a\x83\x00abc",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"abc",
    ],
)
def test_other_data_is_no_field(data: bytes) -> None:
    assert inside(TAG, data) is None


def test_fields_are_counted_as_protobuf_writes_them() -> None:
    members = [exchange_pb2.Member(name="n" * number, incarnation=number) for number in range(300)]
    envelope = exchange_pb2.Envelope(version=2, round=2**63, members=members, head_bytes=7)
    written = envelope.SerializeToString()
    assert at_most(written, 303)
    assert not at_most(written, 302)


@pytest.mark.parametrize(
    "data", [b"\x0b\x0c" * 9, b"\x0a\x7f" + bytes(9), b"\xff" * 30, b"\x09" + bytes(7), b"\x0f" * 9]
)
def test_bytes_that_are_no_fields_are_too_many(data: bytes) -> None:
    assert not at_most(data, 2)
