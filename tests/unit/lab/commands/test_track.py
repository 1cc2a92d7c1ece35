"""`fednode track`: each round of a node, once, in its tracker; and what it says if it cannot.

Method: a real gRPC server on loopback with canned replies. The trackers themselves are tested where
their packages are installed.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fednode.errors import Unreachable
from fednode.lab.commands import track as tracking
from fednode.lab.commands.track import TRACKERS, Log, Run, figures, follow
from fednode.observe.client import HISTORY_PAGE, Client
from fednode.wire.gen import status_pb2
from tests.unit.commands.run import Fednode
from tests.unit.observe.test_client import Canned, serving


class Node(Canned):
    """A node `a` of the mesh `m`. each: rounds between two questions; last: its last round."""

    def __init__(self, rounds: int, last: int = 0, each: int = 0) -> None:
        super().__init__(rounds)
        self.last, self.each = last, each

    async def Status(
        self, request: status_pb2.StatusRequest, context: Any
    ) -> status_pb2.StatusReply:
        self.rounds = min(self.rounds + self.each, self.last or self.rounds)
        life = "finished" if self.rounds == self.last else "running"
        return status_pb2.StatusReply(name="a", mesh="m", life=life, policy="promptfl")


class Taken:
    """A tracker, and what it took."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.rounds: list[int] = []
        self.closed = False

    @contextmanager
    def __call__(self, run: Run) -> Iterator[Log]:
        self.runs.append(run)
        yield lambda number, values: self.rounds.append(number)
        self.closed = True


async def followed(node: Node, folder: Path, once: bool = False) -> Taken:
    taken = Taken()
    async with serving(node) as address:
        await follow(Client, address, taken, folder, once, poll_s=0.0)
    return taken


async def test_a_node_is_followed_to_its_last_round(tmp_path: Path) -> None:
    taken = await followed(Node(2, last=9, each=3), tmp_path)
    assert taken.rounds == list(range(1, 10))
    assert taken.closed
    (run,) = taken.runs
    assert run.name.startswith("a-2")
    assert (run.settings["mesh"], run.settings["policy.name"], run.folder) == (
        "m",
        "promptfl",
        tmp_path,
    )


async def test_once_writes_what_the_node_holds_now(tmp_path: Path) -> None:
    count = 2 * HISTORY_PAGE + 1
    assert (await followed(Node(count), tmp_path, once=True)).rounds == list(range(1, count + 1))


async def test_a_node_that_does_not_answer_is_a_fault(tmp_path: Path) -> None:
    async with serving(None) as address:
        pass
    taken = Taken()
    with pytest.raises(Unreachable, match="Nobody answers at"):
        await follow(Client, address, taken, tmp_path)
    assert not taken.runs


async def test_json_lines_are_for_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(Node(2)) as address:
        await follow(Client, address, tracking.jsonl, tmp_path, once=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["mesh"], line["node"], line["round"]) for line in lines] == [
        ("m", "a", 1),
        ("m", "a", 2),
    ]
    assert lines[0]["traffic/wire_out"] == 0.0


def test_names_of_figures() -> None:
    entry = status_pb2.Round(
        metrics={
            "loss": 1.0, "validation_loss": 2.0, "own": 0.5, "zero_shot_own": 0.25, "odd": 3.0,
            "base": math.nan,
        },
        traffic=status_pb2.Traffic(wire_out=7),
    )  # fmt: skip
    shown = figures(entry)
    assert shown.pop("traffic/wire_out") == 7.0
    assert {name: value for name, value in shown.items() if not name.startswith("traffic/")} == {
        "loss/training": 1.0,
        "loss/validation": 2.0,
        "accuracy/own": 0.5,
        "zero-shot accuracy/own": 0.25,
        "metrics/odd": 3.0,
    }


def test_what_cannot_be_written_is_a_sentence(
    fednode: Fednode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "There is no file peers.yaml" in fednode.fault("track", "a", "--to", "jsonl")
    assert fednode("track", "a", "--to", "aim") == 2
    assert "'aim' is not one of 'jsonl', 'tensorboard', 'wandb', 'mlflow'" in fednode.err
    monkeypatch.setitem(TRACKERS, "wandb", (tracking.wandb, "no_such_package"))
    said = fednode.fault("track", "127.0.0.1:1", "--to", "wandb")
    assert "needs the package no_such_package, which is not installed: run pip install" in said

    async def fails(*_: Any) -> None:
        raise ConnectionError("no route to tracker.example\n")

    monkeypatch.setattr(tracking, "follow", fails)
    assert fednode("track", "127.0.0.1:1", "--to", "jsonl") == 6
    why = "ConnectionError: no route to tracker.example"
    assert fednode.err == f"fednode: jsonl does not take figures: {why}.\n"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["tensorboard", "wandb", "mlflow"])
def test_a_tracker_keeps_what_it_is_given(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    tracker, package = TRACKERS[kind]
    pytest.importorskip(package)

    async def write() -> None:
        async with serving(Node(3)) as address:
            await follow(Client, address, tracker, tmp_path, once=True)

    asyncio.run(write())
    if kind == "mlflow":
        from mlflow.tracking import MlflowClient

        client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
        (run,) = client.search_runs([client.get_experiment_by_name("m").experiment_id])
        assert run.data.params["policy.name"] == "promptfl"
        points = client.get_metric_history(run.info.run_id, "traffic/wire_out")
        assert [point.step for point in points] == [1, 2, 3]
        return
    if kind == "wandb":
        import wandb

        wandb.teardown()  # its service writes the file after the run has ended
    name = "events.out.*" if kind == "tensorboard" else "run-*.wandb"
    (file,) = tmp_path.rglob(name)
    times = 2 if kind == "wandb" else 1  # W&B writes each figure into its summary, too
    assert file.read_bytes().count(b"traffic/wire_out") == 3 * times
