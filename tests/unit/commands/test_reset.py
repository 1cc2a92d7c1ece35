"""`fednode reset`: what it deletes, what it keeps, and when it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fednode.app.create import mesh_key_file
from fednode.app.plan import NodePlan
from fednode.commands import reset
from fednode.core.types import PolicyState, Snapshot, Tensors
from fednode.learn.privacy import ACCOUNT
from fednode.storage.disk import lock
from fednode.storage.store import Store
from tests.unit.app.founders import MESH
from tests.unit.commands.run import Fednode

OTHERS = {"fednode.log", "fednode.log.1", "page-token", "page-link", "settings.yaml", "classes.txt"}


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


def held(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_key_and_the_privacy_account_stay(fednode: Fednode, state: Path) -> None:
    (state / "notes.txt").write_text("of the user")
    assert fednode("reset", "--state", state, "--yes") == 0
    assert held(state) == {"identity", ACCOUNT, "notes.txt"}
    assert (state / "identity" / "node.key").read_text() == "key"
    assert "checkpoints, history.jsonl" in fednode.out
    assert f"Kept: identity, {ACCOUNT}; --all deletes these, too." in fednode.out
    assert "Left alone, because fednode did not write them: notes.txt." in fednode.out
    store = Store(state)  # a node starts from nothing
    assert store.latest() is None
    store.close()
    # A node that was issued a folder is not told to use a link.
    assert fednode("reset", "--state", state, "--all", "--yes") == 0, fednode.err
    assert "needs the folder anew that `fednode invite --out` wrote" in fednode.out


def test_all_of_a_member_goes_and_the_mesh_key_stays(fednode: Fednode, founder: NodePlan) -> None:
    (founder.state / "settings.yaml").write_text("name: a\n")
    assert fednode("reset", "--state", founder.state, "--all", "--yes") == 0, fednode.err
    assert "settings.yaml, identity, enrolment deleted" in fednode.out
    assert not founder.state.exists()
    assert mesh_key_file(MESH).exists()
    assert f"The mesh key stays, {mesh_key_file(MESH)}" in fednode.out
    assert "To join again, move the folder of the settings away: `fednode join LINK`" in fednode.out


def test_a_running_node_is_left_alone(fednode: Fednode, state: Path) -> None:
    before = held(state)
    descriptor = lock(state)
    try:
        assert fednode("reset", "--state", state, "--yes") == 4
    finally:
        os.close(descriptor)
    assert "is in use by process" in fednode.err
    assert held(state) == before


def test_it_asks_first(fednode: Fednode, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = held(state)
    assert "give --yes" in fednode.fault("reset", "--state", state)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda text: text != "Delete these for good?")
    assert fednode("reset", "--state", state) == 1
    assert "Nothing was deleted." in fednode.err
    assert held(state) == before


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["photo.jpg"], "holds nothing to delete of a node"),
        # Of an older version.
        (["journal.db", "settings.yaml"], "of an earlier version of fednode (it holds journal.db)"),
        ([], "There is no state directory"),
    ],
)
def test_a_folder_of_something_else_is_not_touched(
    fednode: Fednode, tmp_path: Path, files: list[str], said: str
) -> None:
    folder = tmp_path / "folder"
    for name in files:
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    assert fednode("reset", "--state", folder, "--all", "--yes") == 4
    assert said in fednode.err
    assert [name for name in files if not (folder / name).exists()] == []


def test_the_account_is_the_one_of_the_learner() -> None:
    assert reset.ACCOUNT == ACCOUNT


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
