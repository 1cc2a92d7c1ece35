"""What a daemon replied is safe to show, and becomes JSON: every text, and every figure."""

from __future__ import annotations

import json
import math

from fednode.wire.gen import status_pb2
from fednode.wire.replies import ITEMS_MAX, MOST, clean, plain

BAD = "\x1b]0;owned\x07[/x]"
SAFE = " ]0;owned [/x]"


def test_texts_of_all_kinds_of_fields_are_cleaned_and_figures_bounded() -> None:
    reply = status_pb2.StatusReply(name=BAD, classes=[BAD], refused={BAD: 3}, uptime_s=1e300)
    reply.metrics.update({"loss": math.inf, BAD: 0.5})
    reply.measured["own"] = math.nan
    reply.best_validation = math.nan
    reply.peers.add(name=BAD, reason="x" * 10_000, heard_s=-1e300)
    reply.events.add(time=1e300, fields={BAD: BAD})
    clean(reply)
    assert (reply.name, list(reply.classes), dict(reply.refused)) == (SAFE, [SAFE], {SAFE: 3})
    assert (reply.uptime_s, dict(reply.metrics)) == (MOST, {"loss": MOST, SAFE: 0.5})
    assert (math.isnan(reply.measured["own"]), reply.best_validation) == (True, 0.0)
    assert (reply.peers[0].name, len(reply.peers[0].reason)) == (SAFE, 1000)
    assert (reply.peers[0].heard_s, reply.events[0].time) == (-MOST, MOST)
    assert dict(reply.events[0].fields) == {SAFE: SAFE}


def test_bytes_and_whole_numbers_stay() -> None:
    request = clean(status_pb2.ControlRequest(command="revoke", proof=b"\x1b\x00"))
    assert (request.command, request.proof) == ("revoke", b"\x1b\x00")
    assert clean(status_pb2.Event(number=2**60)).number == 2**60


def test_no_list_or_table_is_longer_than_its_bound() -> None:
    many = ITEMS_MAX + 1000
    reply = status_pb2.StatusReply(classes=map(str, range(many)), notes=["x"] * many)
    reply.peers.extend(status_pb2.Peer() for _ in range(many))
    reply.refused.update({str(number): number for number in range(many)})
    clean(reply)
    sizes = [len(part) for part in (reply.classes, reply.notes, reply.peers, reply.refused)]
    assert sizes == [ITEMS_MAX] * 4
    assert list(reply.classes[:2]) == ["0", "1"]


def test_a_message_has_all_its_fields_and_counts_are_numbers() -> None:
    reply = status_pb2.StatusReply(
        name="a",
        refused={"norm": 2},
        metrics={"loss": 0.5},
        traffic=status_pb2.Traffic(payload_out=2**40),
    )
    reply.peers.add(name="b", round=3)
    tree = plain(reply)
    assert tree["traffic"]["payload_out"] == 2**40
    assert tree["refused"] == {"norm": 2}
    assert tree["metrics"] == {"loss": 0.5}
    assert tree["peers"][0]["round"] == 3
    assert tree["mesh"] == ""  # not set, and there
    assert json.loads(json.dumps(tree)) == tree
