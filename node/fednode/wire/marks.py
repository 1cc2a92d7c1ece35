"""Marks (node/fednode/core/lives.py) as protobuf messages, and back."""

from __future__ import annotations

import re
from typing import Final

from fednode.core.types import Mark
from fednode.wire.gen import exchange_pb2

PROCESS_MAX: Final = 32
PROOF_BYTES_MAX: Final = 128
WHOLE_MAX: Final = 2**63 - 1
BYTES_MAX: Final = PROCESS_MAX + PROOF_BYTES_MAX + 64
"""Most bytes of a mark on the wire."""
_PROCESS: Final = re.compile(r"[0-9a-f]{1,32}", re.ASCII)


def written(mark: Mark | None) -> exchange_pb2.Mark | None:
    """Return a mark as a protobuf message."""
    if mark is None:
        return None
    return exchange_pb2.Mark(
        process=mark.process,
        run=mark.run,
        round=mark.round,
        released=mark.released,
        proof=mark.proof,
    )


def read(message: exchange_pb2.Envelope | exchange_pb2.Ack, name: str) -> Mark | None:
    """Return the mark in a message's field; None if it has none."""
    if not message.HasField(name):
        return None
    found: exchange_pb2.Mark = getattr(message, name)
    return Mark(
        process=found.process,
        run=found.run,
        round=found.round,
        released=found.released,
        proof=bytes(found.proof),
    )


def fault(mark: Mark | None) -> str:
    """Return what is wrong with the words and numbers of a mark; "" for nothing."""
    if mark is None:
        return ""
    if not _PROCESS.fullmatch(mark.process):
        return f"process {mark.process[:40]!r} is not 1 to {PROCESS_MAX} hexadecimal digits"
    for what, number in (("run", mark.run), ("round", mark.round), ("releases", mark.released)):
        if not 0 <= number <= WHOLE_MAX:
            return f"{what} {number} of a mark is not between 0 and {WHOLE_MAX}"
    if len(mark.proof) > PROOF_BYTES_MAX:
        return f"the proof of a mark has {len(mark.proof)} bytes; at most {PROOF_BYTES_MAX} fit"
    return ""
