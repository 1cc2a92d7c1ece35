"""Marks on the wire."""

from __future__ import annotations

import pytest

from fednode.core.types import Mark
from fednode.errors import FrameError
from fednode.wire import codec, marks
from fednode.wire.gen import exchange_pb2

MARK = Mark(process="ab", run=1, round=7, released=9, proof=b"p" * 96)


def test_a_mark_comes_back_as_it_was() -> None:
    ack = exchange_pb2.Ack(known=marks.written(MARK))
    assert marks.read(exchange_pb2.Ack.FromString(ack.SerializeToString()), "known") == MARK
    assert marks.read(exchange_pb2.Ack(known=marks.written(None)), "known") is None
    assert codec.decode_ack(codec.encode_ack("ok", "", MARK)).known == MARK


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        (Mark(process="", run=0, round=0, released=0), "process"),
        (Mark(process="\x1b[2J", run=0, round=0, released=0), "process"),
        (Mark(process="a" * 33, run=0, round=0, released=0), "process"),
        (Mark(process="a", run=0, round=2**63, released=0), "round"),
        (Mark(process="a", run=2**63, round=0, released=0), "run"),
        (Mark(process="a", run=0, round=0, released=2**63), "releases"),
        (Mark(process="a", run=0, round=0, released=0, proof=bytes(129)), "129 bytes"),
    ],
)
def test_what_no_node_writes_is_refused(mark: Mark, words: str) -> None:
    assert words in marks.fault(mark)
    with pytest.raises(FrameError, match=words):
        codec.decode_ack(codec.write_ack("ok", "", mark))
