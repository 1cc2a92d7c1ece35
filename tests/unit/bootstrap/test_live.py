"""The live table: what each node measures, losses as bars, bytes a second."""

from __future__ import annotations

from rich.text import Text

from fednode.wire.gen import status_pb2
from fednode_bootstrap import live
from tests.unit.commands.canned import drawn


def test_the_live_view_shows_what_each_node_measures_and_why_one_says_nothing() -> None:
    one = status_pb2.StatusReply(
        name="a", life="running", round=3, rounds_max=9, phase="tuning", step=2, steps=5,
        rounds_run=3, rounds_merged=2,
        metrics={"loss": 1.25}, measured={"own": 0.9, "base": 0.5, "new": 0.25}, alone=True,
    )  # fmt: skip
    coming = status_pb2.StatusReply(name="b", life="loading")
    nodes = [
        live.LiveNode("a", "running", one, live.Past()),
        live.LiveNode("b", "loading", coming, live.Past()),
        live.LiveNode("c", "exit code 70", None, live.Past()),
    ]
    assert [" ".join(line.split()) for line in drawn(live.table(nodes)).splitlines()] == [
        "node state round merged doing loss own % base % new % peers sent a second",
        "a running 3/9 2/3 tuning 2/5 1.25 90.0 50.0 25.0 alone 0 B 0 B/s",
        "b loading",
        "c exit code 70",
    ]


def test_the_live_view_shows_who_is_relayed_and_why() -> None:
    peers = [
        status_pb2.Peer(name="b", state="alive", path="relay r:443", path_why="its port is shut"),
        status_pb2.Peer(name="c", state="alive", path="direct"),
    ]
    one = status_pb2.StatusReply(name="a", life="running", peers=peers)
    shown = drawn(live.page(Text("head"), [live.LiveNode("a", "running", one, live.Past())]))
    assert "2/2, 1 relayed" in shown
    assert "a: relayed to b: its port is shut" in shown


def test_losses_as_bars_and_bytes_a_second() -> None:
    assert live.bars([]) == ""
    assert live.bars([1.0, 2.0, 3.0]) == "▁▅█"
    assert live.bars([2.0, 2.0]) == "▁▁"
    past = live.Past()
    for moment, number in enumerate((5, 6, 6, 7)):
        traffic = status_pb2.Traffic(serialized_out=1000 * moment)
        made = status_pb2.StatusReply(round=number, metrics={"loss": number}, traffic=traffic)
        past.note(made, 10.0 + moment)
    assert list(past.losses) == [5, 6, 7]
    assert past.rate == 1000.0
