"""From a node's plan to the use of what it learned: start's settings, then `eval` and `predict`.

The images are coloured squares of two classes, made here; the model is the one that ships.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from node.commands.plan import CLASSES, SETTINGS, find, learner_of, make, placed, recall, remember
from node.config import Settings
from node.core.types import Job, PolicyState, Snapshot, Tensors
from node.data.base import DataSettings, PartitionSettings
from node.errors import ConfigError, StateError
from node.peers import PeerEntry, Peers
from node.runtime.store import Store
from tests.unit.commands.run import PEERS, Fednode

COLOURS = {"lemon": (230, 220, 40), "sea": (20, 60, 200)}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with images, and a state directory of a node that ran one round."""
    folder = tmp_path_factory.mktemp("node")
    for name, colour in COLOURS.items():
        (folder / "images" / name).mkdir(parents=True)
        for number in range(6):
            shade = tuple(max(0, part - 3 * number) for part in colour)
            Image.new("RGB", (64, 64), shade).save(folder / "images" / name / f"{number}.png")
    (folder / "peers.yaml").write_text(PEERS)
    flags = (
        f"data.path={folder / 'images'}",
        f"cache.folder={folder / 'cache'}",
        *("data.shots=4", "data.test=0.3", "rounds.max=1", "tuning.lr=0.1", "tuning.epochs=20"),
    )
    plan = make(folder / "peers.yaml", None, "a", flags, folder / "state")
    store = Store(plan.state)
    learner = learner_of(plan.settings, "a", plan.state)
    first = learner.initial(1)
    report = learner.tune(Job(1, "prompts", first, 3, rounds=1), lambda: False, lambda _: None)
    remember(plan, learner)
    store.commit(Snapshot(PolicyState(1, report.tensors, report.tensors), report.metrics))
    store.close()
    yield folder
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()


def test_eval_prints_the_hand_written_and_the_tuned_prompt(fednode: Fednode, tuned: Path) -> None:
    assert fednode("eval", "--state", tuned / "state", "--format", "json") == 0
    found = json.loads(fednode.out)
    assert found["round"] == 1
    assert found["tuned"] == {"own": 1.0}  # a lemon and the sea are easily told apart
    assert set(found["zero-shot"]) == {"own"}
    assert fednode("eval", "--state", tuned / "state") == 0
    lines = fednode.out.splitlines()
    assert lines[0].startswith("Prompts of round 1 in ")
    assert [line.split()[0] for line in lines[1:]] == ["own", "zero-shot", "tuned"]


def test_eval_on_other_images(fednode: Fednode, tuned: Path) -> None:
    words = ("eval", "--state", tuned / "state", "--set", "data.path=/nowhere")
    assert "'/nowhere' does not exist" in fednode.fault(*words)


def test_predict_names_what_images_show(fednode: Fednode, tuned: Path) -> None:
    images = [tuned / "images" / name / "5.png" for name in COLOURS]
    assert fednode("predict", "--state", tuned / "state", "--format", "json", *images) == 0
    rows = [json.loads(line) for line in fednode.out.splitlines()]
    assert [max(row["classes"], key=row["classes"].get) for row in rows] == list(COLOURS)
    assert all(sum(row["classes"].values()) == pytest.approx(1, abs=1e-4) for row in rows)
    assert fednode("predict", "--state", tuned / "state", "--top", "1", images[0]) == 0
    assert fednode.out.startswith(f"{images[0]}: lemon ")


def test_predict_among_other_classes(fednode: Fednode, tuned: Path) -> None:
    image = tuned / "images" / "sea" / "0.png"
    words = (
        "predict",
        "--state",
        tuned / "state",
        "--classes",
        "dog, tree,house",
        "--format",
        "json",
        image,
    )
    assert fednode(*words) == 0
    assert set(json.loads(fednode.out)["classes"]) == {"dog", "tree", "house"}


def test_what_predict_cannot_do_is_a_sentence(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    state, image = tuned / "state", tuned / "images" / "sea" / "0.png"
    text = tmp_path / "text.png"
    text.write_text("not an image")
    assert str(text) in fednode.fault("predict", "--state", state, text)
    assert "no image file gone.png" in fednode.fault("predict", "--state", state, "gone.png")
    assert "empty name" in fednode.fault("predict", "--state", state, "--classes", "a,,b", image)
    assert "No node has run here" in fednode.fault("predict", image)
    assert str(tmp_path) in fednode.fault("predict", "--state", tmp_path, image)


def test_a_state_directory_without_what_start_leaves_says_what_to_do(
    tuned: Path, tmp_path: Path
) -> None:
    for name in (SETTINGS, CLASSES):
        kept = tuned / "state" / name
        kept.rename(tmp_path / name)
        try:
            with pytest.raises(StateError, match=f"has no {name}: start the node once more"):
                recall(tuned / "state")
        finally:
            (tmp_path / name).rename(kept)


def test_a_node_that_finished_no_round_has_nothing_to_use(
    tmp_path: Path, fednode: Fednode, peers: Path
) -> None:
    plan = make(peers, None, "a", ("tuning.kind=closed-form",), tmp_path / "state")
    store = Store(plan.state)
    learner = learner_of(plan.settings, "a", None)
    remember(plan, learner)
    store.commit(Snapshot(PolicyState(0, learner.initial(1), Tensors()), {}))
    store.close()
    with pytest.raises(StateError, match="holds no tuned prompts yet"):
        recall(plan.state)


def test_the_only_state_directory_below_home_is_found(fednode: Fednode, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="No node has run here"):
        find(None)
    root = tmp_path / ".local/state/fednode/m"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        (root / name / "journal.db").write_text("")
        if name == "a":
            assert find(None) == root / "a"
    with pytest.raises(StateError, match="2 nodes have run here: choose one"):
        find(None)
    assert find(tmp_path) == tmp_path


def test_a_node_s_share_is_its_place_in_peers_yaml() -> None:
    peers = Peers("m", tuple(PeerEntry(name, "") for name in "zab"))
    settings = Settings(data=DataSettings(partition=PartitionSettings(how="classes")))
    assert placed(settings, peers, "a").data.partition == PartitionSettings("classes", 1, 3)
    fixed = Settings(data=DataSettings(partition=PartitionSettings("classes", 0, 9)))
    assert placed(fixed, peers, "a") == fixed
    assert placed(Settings(), peers, "a") == Settings()


def test_what_a_plan_takes_from_where(fednode: Fednode, peers: Path, tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text("name: b\nstate_dir: there\n")
    plan = make(peers, config, None, (), None)
    assert (plan.name, plan.state, plan.mode) == ("b", Path("there"), "async")
    assert make(peers, config, "a", (), Path("here")).state == Path("here")
    config.write_text("name: b\n")
    expected = tmp_path / ".local/state/fednode/clinic/b"
    assert make(peers, config, None, (), None).state == expected
    with pytest.raises(ConfigError, match=r"rounds.quorum is 3"):
        make(peers, config, None, ("rounds.mode=quorum", "rounds.quorum=3"), None)
