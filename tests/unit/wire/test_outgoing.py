"""A message to several peers is encoded once, and its receivers all read the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fednode.core.merge.numbers import roundtrip
from fednode.core.types import DTYPES, Dtype, Tensors
from fednode.wire import codec
from fednode.wire.outgoing import Broadcasts, Outgoing
from fednode.wire.tensors import payload_bytes
from tests.unit.wire.samples import message


def test_a_frame_is_made_when_it_is_asked_for_and_kept() -> None:
    said = message()
    outgoing = Outgoing(said, "float16")
    assert outgoing.payload == payload_bytes(said.tensors, "float16")
    assert outgoing.frame == codec.encode(said, "float16")
    assert outgoing.frame is outgoing.frame


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_message_is_read_as_its_receivers_read_it(dtype: Dtype) -> None:
    said = message()
    decoded = Outgoing(said, dtype).decoded
    assert decoded == replace(said, tensors=roundtrip(said.tensors, dtype))
    assert decoded.dtype == dtype


def test_sends_of_one_message_share_a_frame() -> None:
    broadcasts, said = Broadcasts(), message()
    first = broadcasts.outgoing(said, "float32")
    assert broadcasts.outgoing(said, "float32") is first
    assert broadcasts.outgoing(said, "float16") is not first
    assert broadcasts.outgoing(message(), "float32") is not first  # equal, and another message


def test_the_format_that_a_message_names_goes_before_that_of_the_node() -> None:
    broadcasts = Broadcasts()
    assert broadcasts.outgoing(message(dtype="int8"), "float32").dtype == "int8"
    assert broadcasts.outgoing(message(tensors=Tensors()), "float16").dtype == "float16"
