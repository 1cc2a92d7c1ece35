"""What comes over the status RPC arrives as plain values, field by field."""

from __future__ import annotations

from bootstrap.observe import (
    Bytes,
    NodeStatus,
    RpcObserver,
    round_of,
    status_of,
    traffic_of,
)
from node.wire.gen import status_pb2
from tests.unit.runtime.test_client import Canned, serving

NUMBERS = dict(zip(Bytes.__slots__, range(1, 9), strict=True))


async def test_status_and_history_pass_through_the_client() -> None:
    async with serving(Canned(rounds=2)) as address:
        observer = RpcObserver()
        status = await observer.status(address)
        assert (status.name, status.life, status.metrics) == ("a", "running", {"loss": 0.5})
        assert [one.round for one in await observer.history(address)] == [1, 2]
        await observer.close()


def test_every_figure_keeps_its_name() -> None:
    traffic = status_pb2.Traffic(**NUMBERS)
    assert traffic_of(traffic) == Bytes(**NUMBERS)
    peer = status_pb2.Peer(name="b", state="alive", selected=3)
    event = status_pb2.Event(text="b was refused")
    found = status_of(
        status_pb2.StatusReply(
            name="a",
            life="finished",
            phase="idle",
            round=7,
            rounds_max=9,
            step=1,
            steps=2,
            metrics={"own": 0.5},
            peers=[peer],
            traffic=traffic,
            refused={"stale": 4},
            events=[event],
            alone=True,
            policy="zerodfl",
            version="1",
            model="fednode-mini",
            backbone="abc",
            samples=40,
            pid=12,
        )
    )
    assert found == NodeStatus(
        name="a",
        life="finished",
        phase="idle",
        round=7,
        rounds_max=9,
        step=1,
        steps=2,
        metrics={"own": 0.5},
        peers={"b": "alive"},
        selected={"b": 3},
        traffic=Bytes(**NUMBERS),
        refused={"stale": 4},
        events=("b was refused",),
        alone=True,
        policy="zerodfl",
        version="1",
        model="fednode-mini",
        backbone="abc",
        samples=40,
        pid=12,
    )
    assert found.finished
    adopted = round_of(status_pb2.Round(round=2, metrics={"new": 0.1}, traffic=traffic, digest="d"))
    assert (adopted.round, adopted.metrics, adopted.digest) == (2, {"new": 0.1}, "d")
    assert adopted.traffic == Bytes(**NUMBERS)
