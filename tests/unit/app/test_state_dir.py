"""A state directory: what a start leaves, what later commands read, and how it is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fednode.app.client import key_folder
from fednode.app.plan import learner_of, make
from fednode.app.state_dir import find, recall, remember, settings_text
from fednode.core.types import PolicyState, Snapshot, Tensors
from fednode.errors import ConfigError, StateError
from fednode.settings.output import PageSettings
from fednode.settings.read import Settings
from fednode.storage.store import CLASSES, SETTINGS, Store
from tests.unit.app.founders import MESH, founded, joined
from tests.unit.commands.run import PEERS, Fednode


@pytest.mark.parametrize("name", [SETTINGS, CLASSES])
def test_a_file_that_is_damaged_or_not_there_is_named(
    tuned: Path, tmp_path: Path, name: str
) -> None:
    state = shutil.copytree(tuned / "state", tmp_path / "state")
    (state / name).write_bytes(b"lemon\n\xff\xfe\x00")
    said = f"{state / name}, line 2, is not UTF-8 text: start the node once more"
    with pytest.raises(StateError, match=said):
        recall(state)
    (state / name).unlink()
    with pytest.raises(StateError, match=f"has no {name}: start the node once more"):
        recall(state)
    (state / SETTINGS).write_text("seed: 1\ntuning: {decay: 1}\n")
    (state / CLASSES).write_text("lemon\n")
    said = "line 2: unknown key 'tuning.decay': another version of fednode wrote it; start the node"
    with pytest.raises(ConfigError, match=said):
        recall(state)
    with pytest.raises(ConfigError, match=r"=1: unknown key 'tuning\.decays'; remove it\."):
        recall(state, ["tuning.decays=1"])
    (state / name).unlink()
    (state / SETTINGS).write_text("data: [\n")
    with pytest.raises(StateError, match=r"line 2, .*: start the node once more|has no classes"):
        recall(state)


def test_a_node_that_finished_no_round_has_nothing_to_use(
    tmp_path: Path, fednode: Fednode, peers: Path
) -> None:
    plan = make(peers, None, "a", ("tuning.kind=closed-form",), tmp_path / "state")
    store = Store(plan.state)
    learner = learner_of(plan.settings, "a")
    remember(plan.state, plan.name, plan.settings, learner.classes)
    store.commit(Snapshot(PolicyState(0, learner.initial(1), Tensors()), {}))
    store.close()
    with pytest.raises(StateError, match="holds no tuned prompts yet"):
        recall(plan.state)


def ran(mesh: str, *names: str) -> Path:
    """Make state directories below the home folder; return the folder of the mesh."""
    root = Path.home() / ".local/state/fednode" / mesh
    for name in names:
        (root / name / "checkpoints").mkdir(parents=True)
    return root


def test_the_only_state_directory_below_home_is_found(fednode: Fednode, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="No node has run here"):
        find(None)
    root = ran("m", "a")
    assert find(None) == root / "a"
    ran("m", "b")
    with pytest.raises(StateError, match="2 nodes have run here: choose one"):
        find(None)
    assert find(tmp_path) == tmp_path
    ran("m", *"cdef")
    with pytest.raises(StateError, match=r"6 nodes have run here.*/e and 1 more\)"):
        find(None)


def test_a_state_directory_is_found_by_the_name_of_its_node(
    fednode: Fednode, tmp_path: Path
) -> None:
    """peers.yaml in the folder says which mesh is meant if nodes of two meshes have the name."""
    with pytest.raises(StateError, match=r"There is no folder a, and no node of this name has run"):
        find(Path("a"))
    root = ran("m", "a")
    assert find(Path("a")) == root / "a"
    root = ran("n", "a")
    with pytest.raises(StateError, match=r"2 nodes called a have run here: choose one with"):
        find(Path("a"))
    (tmp_path / "peers.yaml").write_text("mesh: n\ninsecure: true\n")
    assert find(Path("a")) == root / "a"
    assert find(Path("runs/a")) == Path("runs/a")
    (tmp_path / "a").mkdir()
    assert find(Path("a")) == Path("a")


def test_secrets_do_not_stay_in_the_state_directory() -> None:
    page = PageSettings(token="a-long-page-token")
    settings = Settings(proxy="http://me:secret@proxy:1", page=page)
    text = settings_text(settings)
    assert "secret" not in text
    assert "a-long" not in text


def test_the_state_directory_that_node_yaml_names_is_the_one_that_all_commands_use(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    root = ran("clinic", "a", "b")
    (tmp_path / "peers.yaml").write_text(PEERS)
    (tmp_path / "node.yaml").write_text("name: b\n")
    assert find(None) == root / "b"
    shutil.copytree(tuned / "state", tmp_path / "moved")
    (tmp_path / "node.yaml").write_text("name: b\nstate_dir: moved\n")
    assert find(None) == Path("moved")
    assert find(Path("a")) == root / "a"
    assert fednode("predict", tuned / "images") == 0
    (tmp_path / "moved").rename(tmp_path / "elsewhere")
    for words in (("eval",), ("predict", tuned / "images"), ("export", "f")):
        said = fednode.fault(*words)
        assert said.startswith("./node.yaml names the state directory moved, and there is none")


def test_a_state_directory_that_was_moved_gets_no_new_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fednode: Fednode
) -> None:
    site = joined(founded(tmp_path, monkeypatch), tmp_path, "b")
    monkeypatch.chdir(tmp_path / "files-b")
    config = tmp_path / "files-b" / "node.yaml"
    text = config.read_text()
    elsewhere = tmp_path / "elsewhere"
    site.state.rename(elsewhere)
    assert fednode("start") == StateError.exit_code
    assert f"There is no key of a node in {site.state}/identity" in fednode.err
    config.write_text(f"{text}state_dir: {tmp_path / 'gone'}\n")
    assert fednode("start") == StateError.exit_code
    assert f"There is no key of a node in {tmp_path / 'gone'}/identity" in fednode.err
    for words in (("status",), ("eval",), ("pause", "b")):
        assert f"names the state directory {tmp_path / 'gone'}" in fednode.fault(*words)
    assert not site.state.exists()
    assert not (tmp_path / "gone").exists()
    config.write_text(f"{text}state_dir: {elsewhere}\n")
    assert key_folder(MESH, None) == elsewhere
    assert "None of the 2 nodes answers" in fednode.fault("status")
