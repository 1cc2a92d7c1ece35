"""Messages that the wire tests share."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from fednode.core.types import Message, Tensors
from fednode.wire.gen import exchange_pb2

FINGERPRINT = hashlib.sha256(b"settings").hexdigest()


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


def sealed(envelope: exchange_pb2.Envelope) -> bytes:
    """Return an envelope as a frame with a right length and checksum, whatever else it holds."""
    head = exchange_pb2.Envelope()
    head.CopyFrom(envelope)
    for field in ("block", "head_bytes", "checksum"):
        head.ClearField(field)
    block = exchange_pb2.Envelope(block=envelope.block).SerializeToString()
    return built(head.SerializeToString(deterministic=True), block)


def built(head: bytes, block: bytes = b"") -> bytes:
    """Return any head and any bytes behind it as a frame with a right length and checksum."""
    return seal(head + block + b"\x7d" + len(head).to_bytes(4, "little"))


def seal(body: bytes) -> bytes:
    """Return any bytes with the checksum field that makes a frame of them."""
    return body + b"\x62\x20" + hashlib.sha256(body).digest()


def opened(frame: bytes) -> exchange_pb2.Envelope:
    """Return the envelope of a frame without its checksum, to be changed and sealed again."""
    return exchange_pb2.Envelope.FromString(frame[:-34])


def joined(packed: tuple[bytes, tuple[memoryview, ...]]) -> tuple[bytes, bytes]:
    """Return the table and the block of what `pack` returns."""
    table, block = packed
    return table, b"".join(block)
