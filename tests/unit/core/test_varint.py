"""Protobuf's whole numbers, against protobuf's own reader and writer."""

from __future__ import annotations

import pytest
from google.protobuf.internal import decoder, encoder

from fednode.core.varint import read, written
from fednode.errors import FrameError

NUMBERS = [0, 1, 127, 128, 300, 16383, 16384, 2**32, 2**63, 2**64 - 1]


@pytest.mark.parametrize("number", NUMBERS)
def test_protobuf_writes_and_reads_the_same(number: int) -> None:
    body = b"\xff" + written(number) + b"\xff"
    assert written(number) == encoder._VarintBytes(number)  # type: ignore[attr-defined]
    assert read(body, 1) == (number, len(body) - 1)
    assert read(body, 1) == tuple(decoder._DecodeVarint(body, 1))  # type: ignore[attr-defined]


@pytest.mark.parametrize("body", [b"", b"\x80", b"\xff\xff"])
def test_a_number_that_is_cut_short_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError, match="cut short"):
        read(body, 0)


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(FrameError, match="more than 64 bits"):
        read(b"\xff" * 10 + b"\x01", 0)
