"""Messages and frames that the wire tests share."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import msgpack
import numpy as np

from fednode.core.types import Message, Tensors
from fednode.wire import codec
from fednode.wire.gen import exchange_pb2

FINGERPRINT = hashlib.sha256(b"settings").hexdigest()
START = struct.Struct("<BBII")
"""What a frame begins with: 8, its version, the lengths of its head and of its arrays."""


def message(**changes: Any) -> Message:
    """Return a message as nodes send it, with changes to its fields."""
    values: dict[str, Any] = {
        "mesh": "demo",
        "fingerprint": FINGERPRINT,
        "policy": "zerodfl",
        "sender": "node-1",
        "round": 3,
        "phase": "prompts",
        "tensors": prompts(),
        "samples": 120,
    }
    return Message(**(values | changes))


def prompts(rows: int = 4, width: int = 512) -> Tensors:
    """Return numbers as prompts have them: small, of both signs."""
    rows_and_columns = np.arange(rows * width, dtype=np.float32).reshape(rows, width)
    return Tensors({"context": np.sin(rows_and_columns) * 0.02})


def built(head: bytes, arrays: bytes = b"", version: int = codec.VERSION) -> bytes:
    """Return any head and any arrays as a frame that says their right lengths."""
    return START.pack(8, version, len(head), len(arrays)) + head + arrays


def split(frame: bytes) -> tuple[bytes, bytes]:
    """Return the head and the arrays of a frame."""
    _, _, size, _ = START.unpack_from(frame)
    return frame[START.size :][:size], frame[START.size + size :]


def changed(frame: bytes, **fields: Any) -> bytes:
    """Return a frame with other values in fields of its envelope."""
    head, arrays = split(frame)
    envelope = exchange_pb2.Envelope.FromString(head)
    for name, value in fields.items():
        setattr(envelope, name, value)
    return built(envelope.SerializeToString(deterministic=True), arrays)


def metadata(facts: Any = (), news: Any = (), classes: Any = ()) -> bytes:
    """Return three packed lists, whatever they hold."""
    return b"".join(map(msgpack.packb, (facts, news, classes)))
