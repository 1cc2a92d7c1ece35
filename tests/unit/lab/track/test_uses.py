"""A node, a mesh and an experiment in a tracker."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fednode.app.plan import make
from fednode.core.types import PolicyState, Snapshot, Tensors
from fednode.errors import ConfigError
from fednode.lab.experiment.run import Cell, Done
from fednode.lab.experiment.settings import DataPart, Experiment, MethodSettings
from fednode.lab.experiment.tracked import Runs, steps, tracked
from fednode.lab.track import tracking as module
from fednode.lab.track.node import NodeTracking, tracked_of
from fednode.lab.track.tracking import Shipped
from fednode.observe.events import Events
from fednode.observe.telemetry import Telemetry
from fednode.settings.read import load_settings
from fednode.storage.store import Store
from fednode_bootstrap.local import LocalOptions
from tests.unit.commands.run import PEERS

FAKE = Shipped("Fake", "fednode.lab.track.fake:FakeTracker", "json")


def lines(path: Path) -> list[Any]:
    return [json.loads(one) for one in path.read_text().splitlines()]


async def test_a_node_s_rounds_settings_and_table(tmp_path: Path) -> None:
    peers, folder = tmp_path / "peers.yaml", tmp_path / "shared"
    peers.write_text(PEERS)
    flags = ("tuning.kind=closed-form", "token=a-secret", f"tracker.folder={folder}")
    plan = make(peers, None, "a", flags, tmp_path / "state")
    store, events = Store(plan.state), Events()
    tracked = NodeTracking(FAKE, plan, events)
    tracked.begin()
    telemetry = Telemetry({}, events)
    telemetry.followed = tracked.adopted
    for number in (1, 2):
        telemetry.count("b", "out", 100, 150)
        prompts = Tensors({"context": [float(number)]})
        snapshot = Snapshot(
            PolicyState(number, prompts, prompts), {"loss": 1 / number, "own": number / 4}
        )
        store.commit(snapshot, telemetry.meters())
        telemetry.committed(snapshot, (), 0.1)
    store.close()
    await tracked.close()
    await tracked.close()
    begin, first, second, table, end = lines(folder / "a.jsonl")
    assert begin[:3] == ["begin", "a", "clinic"]
    assert begin[3]["policy.name"] == "zerodfl"
    assert begin[3]["rounds.mode"] == "async"
    assert "a-secret" not in json.dumps(begin)
    assert first[:2] == ["log", 1]
    assert first[2]["loss/training"] == 1.0
    assert first[2]["traffic/payload_out"] == 100.0
    assert (second[2]["accuracy/own"], second[2]["traffic/serialized_out"]) == (0.5, 300.0)
    rows = list(csv.DictReader(table[2].splitlines()))
    assert [(row["round"], row["accuracy/own"]) for row in rows] == [("1", "0.25"), ("2", "0.5")]
    assert (plan.state / "rounds.csv").read_text() == table[2]
    assert end == ["end"]
    records = [one.record.kind async for one in events.follow(0, "info", live=False)]
    assert "tracker.ready" in records


def test_a_node_without_a_tracker_has_none_and_a_missing_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = tmp_path / "peers.yaml"
    peers.write_text(PEERS)
    assert tracked_of(make(peers, None, "a", (), tmp_path / "s"), Events()) is None
    monkeypatch.setitem(module.TRACKERS, "wandb", Shipped("W&B", "x:X", "no_such_package"))
    plan = make(peers, None, "a", ("tracker.kind=wandb",), tmp_path / "s")
    with pytest.raises(ConfigError, match=r"run pip install 'fednode\[wandb\]'"):
        tracked_of(plan, Events())
    with pytest.raises(ConfigError, match=r"tracker\.kind is 'aim'"):
        load_settings(None, {}, ("tracker.kind=aim",))


def test_the_nodes_of_a_mesh_are_runs_of_one_group(tmp_path: Path) -> None:
    folder = tmp_path / "mesh-1"
    settings = LocalOptions(tracker="mlflow").mesh(folder).settings
    assert settings == (
        "tracker.kind=mlflow",
        f"tracker.folder={folder / 'tracker'}",
        "tracker.group=mesh-1",
    )
    assert LocalOptions().mesh(folder).settings == ()


OUTCOME: dict[str, Any] = {
    "scores": {"photo": {"node-01": 0.5, "node-02": 1.0}},
    "curve": {"1": {"photo": {"node-01": 0.5, "node-02": 0.0}}},
    "loss": [3.0, 2.0],
    "consensus": [0.0, 0.5],
    "bytes": {
        "hello": {"messages": 9, "payload": 9, "serialized": 9, "wire": 9},
        "rows": {"messages": 4, "payload": 40, "serialized": 44, "wire": 50},
        "done": {"messages": 1, "payload": 0, "serialized": 3, "wire": 5},
    },
    "rounds": 2,
    "seconds": 7.0,
}


def test_figures_of_a_cell_by_round() -> None:
    assert steps(OUTCOME) == {
        1: {"accuracy/photo": 0.25, "loss/training": 3.0, "consensus distance": 0.0},
        2: {
            "accuracy/photo": 0.75,
            "loss/training": 2.0,
            "consensus distance": 0.5,
            "traffic/messages": 5.0,
            "traffic/payload": 40.0,
            "traffic/serialized": 47.0,
            "traffic/wire": 55.0,
            "seconds": 7.0,
        },
    }
    zero_shot = {"scores": OUTCOME["scores"], "seconds": 1.0}
    assert steps(zero_shot) == {0: {"accuracy/photo": 0.75, "seconds": 1.0}}


def test_an_experiment_s_cells_and_tables(tmp_path: Path) -> None:
    method = MethodSettings(label="ours", policy={"name": "zerodfl", "recipients": 2})
    experiment = Experiment(title="a trial", data=DataPart(path="x"), methods=(method,))
    (tmp_path / "report.md").write_text("# report\n")
    cells = [Cell(method, seed, "photo", "k") for seed in (1, 2, 3)]
    ended = [Done(cells[0], OUTCOME), Done(cells[1], OUTCOME, fresh=False), Done(cells[2], {}, "x")]
    out = io.StringIO()
    with tracked(FAKE, Console(file=out)) as tracking:
        runs = Runs(tracking, experiment, tmp_path)
        for one in ended:
            runs.note(one)
        runs.tables()
    folder = tmp_path / "tracker"
    begin, first, second, end = lines(folder / "ours-seed-1-photo.jsonl")
    assert begin[1:3] == ["ours, seed 1, photo", "a trial"]
    assert begin[3]["method.policy.recipients"] == 2
    assert begin[3]["seed"] == 1
    assert (first[1], second[1], end) == (1, 2, ["end"])
    assert [one[0] for one in lines(folder / "tables.jsonl")] == ["begin", "table", "end"]
    assert not list(folder.glob("ours-seed-[23]*"))
    assert f"Fake: {folder}" in out.getvalue().replace("\n", "")
    with tracked(None, Console(file=out)) as tracking:
        assert tracking is None
        runs = Runs(tracking, experiment, tmp_path)
        runs.note(ended[0])
        runs.tables()
