"""A node's history reaches a tracker: each round once, whatever happens between.

Method: a real gRPC server on loopback with canned replies, and the fake tracker.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from fednode.errors import ConfigError, Refused, Unreachable
from fednode.lab.track import node
from fednode.lab.track.node import figures
from fednode.lab.track.writing import Patient
from fednode.observe.client import HISTORY_PAGE, Client
from fednode.wire.gen import status_pb2
from tests.unit.lab.track.conftest import FAKE, broken, lines, logged
from tests.unit.observe.test_client import Canned, serving


class Node(Canned):
    """A node `a` of the mesh `m`. each: rounds that it runs between two questions; last: its end.

    oldest: the oldest round that it holds. run: changes the digests, as a node that was reset.
    """

    def __init__(self, rounds: int, last: int = 0, each: int = 0, oldest: int = 1) -> None:
        super().__init__(rounds)
        self.last, self.each, self.oldest, self.run = last, each, oldest, ""
        self.often = asyncio.Event()

    async def Status(
        self, request: status_pb2.StatusRequest, context: Any
    ) -> status_pb2.StatusReply:
        self.rounds = min(self.rounds + self.each, self.last or self.rounds)
        life = "finished" if self.rounds == self.last else "running"
        return status_pb2.StatusReply(
            name="a", mesh="m", life=life, policy="promptfl", model="mini", rounds_max=self.last
        )

    async def History(
        self, request: status_pb2.HistoryRequest, context: Any
    ) -> status_pb2.HistoryReply:
        self.asked.append(request.since)
        if len(self.asked) > 1:
            self.often.set()
        first = max(self.oldest, request.since)
        last = min(self.rounds, first + min(request.limit, HISTORY_PAGE) - 1)
        rounds = [
            status_pb2.Round(
                round=number,
                metrics={"loss": 1 / number},
                traffic=status_pb2.Traffic(wire_out=10 * number),
                digest=f"{number}{self.run}",
            )
            for number in range(first, last + 1)
        ]
        return status_pb2.HistoryReply(rounds=rounds)


class Told(list[str]):
    """What the command says. silent: set when the node stops answering."""

    def __init__(self) -> None:
        super().__init__()
        self.silent = asyncio.Event()

    def append(self, text: str) -> None:
        super().append(text)
        if "Still following" in text:
            self.silent.set()


async def follow(served: Node, folder: Path, told: Told | None = None, **more: Any) -> None:
    async with serving(served) as address:
        more = {"tracker": FAKE, "patient": Patient("Fake"), "poll_s": 0.0, **more}
        say = (told if told is not None else Told()).append
        await node.track(Client, address, say=say, folder=folder, **more)


async def test_a_node_is_followed_to_its_last_round(tmp_path: Path) -> None:
    told = Told()
    await follow(Node(2, last=9, each=3), tmp_path, told)
    begin, *rounds, end = lines(tmp_path / "a.jsonl")
    assert begin[1:3] == ["a", "m"]
    assert begin[3]["policy.name"] == "promptfl"
    assert begin[3]["rounds.max"] == 9
    assert [one[1] for one in rounds] == list(range(1, 10))
    assert rounds[3][2]["loss/training"] == 0.25
    assert rounds[3][2]["traffic/wire_out"] == 40.0
    assert end == ["end"]
    assert told == [f"Fake: {tmp_path / 'a.jsonl'}", "The run 'a' has the rounds until 9."]


async def test_started_again_it_writes_no_round_twice_and_misses_none(tmp_path: Path) -> None:
    served = Node(4)
    for rounds in (4, 4, 7):
        served.rounds = rounds
        await follow(served, tmp_path, once=True)
    assert logged(tmp_path / "a.jsonl") == list(range(1, 8))
    assert served.asked == [0, 4, 4]


async def test_a_history_of_several_pages_is_read_whole(tmp_path: Path) -> None:
    await follow(Node(2 * HISTORY_PAGE + 1), tmp_path, once=True)
    assert logged(tmp_path / "a.jsonl") == list(range(1, 2 * HISTORY_PAGE + 2))


async def test_rounds_that_the_node_no_longer_holds_are_named(tmp_path: Path) -> None:
    told = Told()
    await follow(Node(3), tmp_path, told, once=True)
    await follow(Node(9, oldest=7), tmp_path, told, once=True)
    assert logged(tmp_path / "a.jsonl") == [1, 2, 3, 7, 8, 9]
    missing = "'a' holds no rounds before 7, so the rounds from 4 to 6 are not written."
    assert [one for one in told if "holds no rounds" in one] == [missing]


@pytest.mark.parametrize("rounds", [2, 5, 8])
async def test_a_node_that_was_reset_needs_another_run(tmp_path: Path, rounds: int) -> None:
    await follow(Node(5), tmp_path, once=True)
    reset = Node(rounds)
    reset.run = "again"
    with pytest.raises(ConfigError, match=r"does not hold the round 5 .* --run a-2, say\."):
        await follow(reset, tmp_path, once=True)
    await follow(reset, tmp_path, once=True, name="a-2")
    assert logged(tmp_path / "a.jsonl") == [1, 2, 3, 4, 5]
    assert logged(tmp_path / "a-2.jsonl") == list(range(1, rounds + 1))


async def test_a_node_that_stops_answering_is_followed_further(tmp_path: Path) -> None:
    """The first server ends after round 3; one on the same address goes on from there."""
    told = Told()
    first = Node(3)
    async with serving(first) as address:
        work = node.track(
            Client, address, FAKE, Patient("Fake"), told.append, folder=tmp_path, poll_s=0.01
        )
        following = asyncio.create_task(work)
        await first.often.wait()
    await told.silent.wait()
    async with serving(Node(4, last=6, each=1), address):
        await following
    assert logged(tmp_path / "a.jsonl") == [1, 2, 3, 4, 5, 6]
    assert len([one for one in told if "Still following" in one]) == 1


async def test_a_node_that_never_answered_is_a_fault(tmp_path: Path) -> None:
    async with serving(None) as address:
        pass
    with pytest.raises(Unreachable, match="Nobody answers at"):
        await node.track(
            Client, address, FAKE, Patient("Fake"), Told().append, folder=tmp_path, poll_s=0.0
        )
    assert not os.listdir(tmp_path)


async def test_a_tracker_that_fails_ends_the_following(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="Fake does not take figures: SystemExit: no space"):
        await follow(Node(3, last=9), tmp_path, tracker=broken("FullDisk"))
    with pytest.raises(Unreachable, match="Fake did not take figures within"):
        await follow(
            Node(3, last=9), tmp_path, tracker=broken("Hanging"), patient=Patient("Fake", 0.05)
        )


def test_names_of_figures() -> None:
    metrics = {"loss": 1.0, "validation_loss": 2.0, "own": 0.5, "zero_shot_own": 0.25, "odd": 3.0}
    assert figures(metrics, {"wire_out": 7}) == {
        "loss/training": 1.0,
        "loss/validation": 2.0,
        "accuracy/own": 0.5,
        "zero-shot accuracy/own": 0.25,
        "metrics/odd": 3.0,
        "traffic/wire_out": 7.0,
    }
