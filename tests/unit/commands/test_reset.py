"""`fednode reset`: what it deletes, what it keeps, and when it refuses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fednode import cli
from fednode.app.create import mesh_key_file
from fednode.commands import reset
from fednode.core.types import PolicyState, Snapshot, Tensors
from fednode.learn.privacy import ACCOUNT
from fednode.storage.disk import lock
from fednode.storage.store import Store
from tests.command_line import named
from tests.unit.app.founders import MESH, founded

OTHERS = {"fednode.log", "fednode.log.1", "page-token", "settings.yaml", "classes.txt"}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return the state directory of a node that has run a round."""
    folder = tmp_path / "state"
    store = Store(folder)
    store.commit(Snapshot(PolicyState(1, Tensors(), Tensors()), {"loss": 1.0}))
    store.close()
    for name in (*OTHERS, ACCOUNT):
        (folder / name).write_text("x")
    (folder / "identity").mkdir()
    (folder / "identity" / "node.key").write_text("key")
    return folder


def ended(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["reset", *map(str, words)])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, *capsys.readouterr()


def held(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_key_and_the_privacy_account_stay(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (state / "notes.txt").write_text("of the user")
    code, out, _ = ended(capsys, "--state", state, "--yes")
    assert code == 0
    assert held(state) == {"identity", ACCOUNT, "notes.txt"}
    assert (state / "identity" / "node.key").read_text() == "key"
    assert "checkpoints, history.jsonl" in out
    assert f"Kept: identity, {ACCOUNT}; --all deletes these, too." in out
    assert "Left alone, because fednode did not write them: notes.txt." in out
    store = Store(state)  # a node starts from nothing
    assert store.latest() is None
    store.close()


def test_all_leaves_nothing(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(capsys, "--state", state, "--all", "--yes")[0] == 0
    assert not state.exists()


def test_all_of_a_member_goes_and_the_mesh_key_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = founded(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path / MESH)
    (plan.state / "settings.yaml").write_text("name: a\n")
    code, out, err = ended(capsys, "--state", plan.state, "--all", "--yes")
    assert code == 0, err
    assert "settings.yaml, identity, enrolment deleted" in out
    assert not plan.state.exists()
    assert mesh_key_file(MESH).exists()
    assert f"The mesh key stays, {mesh_key_file(MESH)}" in out
    assert f"`fednode join LINK` in {tmp_path}, with a new link" in out


def test_a_running_node_is_left_alone(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = held(state)
    descriptor = lock(state)
    try:
        code, _, err = ended(capsys, "--state", state, "--yes")
    finally:
        os.close(descriptor)
    assert code == 4
    assert "is in use by process" in err
    assert held(state) == before


def test_it_asks_first(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = held(state)
    code, _, err = ended(capsys, "--state", state)
    assert (code, "give --yes" in err) == (2, True)
    assert held(state) == before
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked = []

    def answer(text: str) -> bool:
        asked.append(text)
        return len(asked) > 1

    monkeypatch.setattr("click.confirm", answer)
    code, _, err = ended(capsys, "--state", state)
    assert (code, "Nothing was deleted." in err) == (1, True)
    assert held(state) == before
    assert ended(capsys, "--state", state)[0] == 0
    assert held(state) == {"identity", ACCOUNT}
    assert asked == ["Delete these for good?"] * 2


def test_a_folder_of_something_else_is_not_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "photo.jpg").write_text("x")
    code, _, err = ended(capsys, "--state", tmp_path, "--all", "--yes")
    assert (code, "holds nothing to delete of a node" in err) == (4, True)
    assert held(tmp_path) == {"photo.jpg"}
    code, _, err = ended(capsys, "--state", tmp_path / "none", "--yes")
    assert (code, "There is no state directory" in err) == (4, True)


def test_the_account_is_the_one_of_the_learner() -> None:
    assert reset.ACCOUNT == ACCOUNT


def test_its_name_leads_here() -> None:
    assert named("reset") is reset.reset


def test_a_directory_of_an_older_version_is_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("journal.db", "settings.yaml"):
        (tmp_path / name).write_text("x")
    code, _, err = ended(capsys, "--state", tmp_path, "--yes")
    assert (code, "of an earlier version of fednode (it holds journal.db)" in err) == (4, True)
    assert held(tmp_path) == {"journal.db", "settings.yaml"}


def test_a_reset_that_is_cut_short_leaves_no_older_round_as_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for number in (3, 1, 2):
        (folder / f"{number:06d}.safetensors").touch()
    gone = list[str]()
    monkeypatch.setattr(Path, "unlink", lambda path: gone.append(path.name))
    reset.delete([folder])
    assert gone == [f"{number:06d}.safetensors" for number in (1, 2, 3)]
