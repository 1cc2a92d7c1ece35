"""tools/bench/scale.py: the smallest runs, their fields, and figures counted another way."""

from __future__ import annotations

import pytest

from fednode.core.types import Message
from fednode.lab.sim.world import World
from fednode.wire import codec
from tools.bench.scale import START_S, measure


def test_bytes_and_messages_are_those_that_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is encoded once more where the world takes it from its node."""
    sent: dict[str, list[int]] = {}
    original = World._send

    def count(self: World, sender: str, life: int, to: str, message: Message, limit: float) -> None:
        frame = codec.encode(message, "float16")
        sent.setdefault(message.phase, []).append(len(frame))
        original(self, sender, life, to, message, limit)

    monkeypatch.setattr(World, "_send", count)
    row = measure("zerodfl", 6, 4, 1)
    assert row["prompts"] == len(sent["prompts"]) / 6 / 4 == 5.0
    assert row["prompts, bytes"] == sum(sent["prompts"]) / 6 / 4
    assert row["hellos"] == len(sent["hello"]) / 6
    assert row["list, bytes/s"] == pytest.approx(
        sum(sent["members"]) / 6 / (row["virtual, s"] - START_S)
    )
    assert row["watch, bytes/s"] > row["list, bytes/s"]


def test_nodes_crash_and_all_run_their_rounds_and_find_each_other() -> None:
    row = measure("zerodfl", 5, 100, 1)
    assert row["crashes"] == 5  # from 10 to 20 virtual seconds, one in two seconds
    assert (row["rounds"], row["live"]) == (100, 4)


def test_with_churn_each_node_crashes_so_many_times_a_minute() -> None:
    row = measure("zerodfl", 24, 2, 1, churn=0.5)
    assert row["crashes"] == 6  # 24 nodes, from 10 to 40 virtual seconds, one in five seconds
    assert (row["rounds"], row["live"]) == (2, 23)
    assert (
        row["watch, bytes/s"]
        > row["list, bytes/s"] + row["hello, bytes/s"]
        > row["hello, bytes/s"]
        > 0
    )


def test_messages_of_watching_do_not_grow_with_the_mesh() -> None:
    """The mesh's crashes are as many in both: 30 a minute."""
    few, many = (measure("zerodfl", nodes, 2, 1, churn=30 / nodes) for nodes in (24, 48))
    assert few["crashes"] == many["crashes"] == 15
    assert many["watch/s"] < 1.1 * few["watch/s"]
    assert many["watch, bytes/s"] < 1.1 * few["watch, bytes/s"]
    assert many["list, bytes/s"] < 1.3 * few["list, bytes/s"]


@pytest.mark.slow
def test_traffic_of_lists_grows_less_than_the_mesh_by_far() -> None:
    """Sizes at which a peer that is back is taken for dead by some, and parts have many entries."""
    few, many = (measure("zerodfl", nodes, 2, 1, churn=30 / nodes) for nodes in (128, 512))
    assert many["watch/s"] < 1.1 * few["watch/s"]
    assert many["watch, bytes/s"] < 1.15 * few["watch, bytes/s"]
    assert many["list, bytes/s"] < 1.7 * few["list, bytes/s"]
