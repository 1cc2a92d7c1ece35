"""`fednode leave`: the goodbye, and with --forget what is deleted, and when nothing is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fednode.app.founding import mesh_key_file, remember_files
from fednode.commands import leave
from fednode.core.types import PolicyState, Snapshot, Tensors
from fednode.observe.client import Client
from fednode.storage.disk import lock
from fednode.storage.store import Store
from fednode.wire.gen import status_pb2
from tests.command_line import named
from tests.unit.app.founders import MESH, founded
from tests.unit.commands.run import Fednode


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the state directory of a founder that has run a round, in whose folder the test is."""
    plan = founded(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path / MESH)
    remember_files(plan.state, tmp_path / MESH)
    store = Store(plan.state)
    store.commit(Snapshot(PolicyState(1, Tensors(), Tensors()), {"loss": 1.0}))
    store.close()
    for name in ("privacy.json", "control.safetensors"):
        (plan.state / name).write_text("x")
    return plan.state


def held(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name != "lock"}


def answering(
    monkeypatch: pytest.MonkeyPatch, name: str, left: Callable[[], None]
) -> list[tuple[Any, ...]]:
    """Let a node of a name answer all clients; return what it will be asked."""
    asked: list[tuple[Any, ...]] = []

    async def status(self: Client, place: str) -> status_pb2.StatusReply:
        return status_pb2.StatusReply(name=name)

    async def control(self: Client, *request: Any) -> str:
        asked.append(request)
        left()
        return "it said goodbye"

    monkeypatch.setattr(Client, "status", status)
    monkeypatch.setattr(Client, "control", control)
    return asked


def test_without_forget_it_asks_the_node_and_deletes_nothing(
    fednode: Fednode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answering(monkeypatch, "a", lambda: None)
    assert named("leave") is leave.leave
    assert fednode("leave", "127.0.0.1:7191") == 0
    assert asked == [("127.0.0.1:7191", "leave")]
    assert fednode.out == "it said goodbye\n"
    assert "--yes answers the question of --forget" in fednode.fault("leave", "a", "--yes")


def test_a_node_that_runs_leaves_first_and_everything_of_it_goes(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fednode, running = Fednode(capsys), lock(state)
    asked = answering(monkeypatch, "a", lambda: os.close(running))
    assert fednode("leave", "a", "--forget", "--yes") == 0
    assert [command for _, command in asked] == ["leave"]
    assert fednode.out.startswith("it said goodbye\n")
    for name in ("identity", "admission", "checkpoints", "privacy.json", "control.safetensors"):
        assert name in fednode.out
    assert not state.exists()
    assert mesh_key_file(MESH).exists(), "other nodes' leases hang on it"
    assert f"the mesh key, {mesh_key_file(MESH)}" in fednode.out
    assert f"the settings in {Path.cwd()}" in fednode.out


def test_a_node_that_does_not_run_is_forgotten_too_and_foreign_files_stay(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fednode = Fednode(capsys)
    (state / "notes.txt").write_text("of the user")
    assert fednode("leave", "a", "--forget", "--yes") == 0
    assert "does not run, so nobody is told" in fednode.out
    assert held(state) == {"notes.txt"}
    assert str(state / "notes.txt") in fednode.out
    assert "holds nothing of a node" in fednode.fault("leave", "a", "--forget", "--yes")


def test_nothing_is_deleted_if_another_node_answers_or_the_node_does_not_stop(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fednode, running, before = Fednode(capsys), lock(state), held(state)
    monkeypatch.setattr(leave, "STOPS_S", 0.0)
    monkeypatch.setattr(leave, "EVERY_S", 0.0)
    asked = answering(monkeypatch, "b", lambda: None)
    assert "is of the node 'a', and 'b' answers" in fednode.fault("leave", "a", "--forget", "--yes")
    assert asked == []
    answering(monkeypatch, "a", lambda: None)
    said = fednode.fault("leave", "a", "--forget", "--yes")
    assert said.startswith("Nothing was deleted. The state directory")
    assert held(state) == before
    os.close(running)


def test_it_asks_before_it_does_anything(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fednode, before, running = Fednode(capsys), held(state), lock(state)
    asked = answering(monkeypatch, "a", lambda: os.close(running))
    assert "give --yes" in fednode.fault("leave", "a", "--forget")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda text: False)
    assert fednode("leave", "a", "--forget") == 1
    assert "Nothing was done" in fednode.err
    assert "This node admits sites" in fednode.out
    assert (asked, held(state)) == ([], before)
    monkeypatch.setattr("click.confirm", lambda text: True)
    assert fednode("leave", "a", "--forget") == 0
    assert not state.exists()


def test_a_node_that_is_not_of_this_machine_is_a_sentence(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fednode = Fednode(capsys)
    assert "no node of this name" in fednode.fault("leave", "b", "--forget", "--yes")
    nowhere = fednode.fault("leave", "a", "--forget", "--yes", "--state", "/nowhere/at-all")
    assert "There is no state directory /nowhere/at-all" in nowhere
