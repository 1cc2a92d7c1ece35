"""Frames of broadcasts: encoded once, and by message."""

from __future__ import annotations

import numpy as np

from fednode.core.types import Message, Tensors
from fednode.wire import codec
from fednode.wire.outgoing import Broadcasts


def message(numbers: int, phase: str = "prompts") -> Message:
    tensors = Tensors({"context": np.arange(float(numbers)).reshape(1, -1)})
    return Message(
        mesh="m",
        fingerprint="ff",
        policy="promptfl",
        sender="a",
        round=1,
        phase=phase,
        tensors=tensors,
    )


def test_equal_messages_of_different_sends_have_frames_of_their_own() -> None:
    """Only one object is one broadcast: to compare contents would cost what encoding costs."""
    broadcasts, said = Broadcasts(), message(3)
    first = broadcasts.outgoing(said, "float32")
    assert broadcasts.outgoing(said, "float32") is first
    assert broadcasts.outgoing(said, "float16") is not first
    assert broadcasts.outgoing(message(3), "float32") is not first
    encoded = [first.encoded]
    assert codec.decode(first.frame) == first.decoded
    assert [*encoded, first.encoded] == [False, True]
    assert first.payload == codec.payload_bytes(said, "float32")
