"""From a node's plan to the use of what it learned: start's settings, then `eval` and `predict`.

The images are coloured squares of two classes, made here; the model is the one that ships.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

import fednode as package
from fednode.app.network import key_folder
from fednode.app.plan import facts_of, free_facts, learner_of, make, placed
from fednode.app.saved import CLASSES, SETTINGS, find, recall, remember, settings_text
from fednode.core.types import PolicyState, Snapshot, Tensors
from fednode.data.base import DataSettings, PartitionSettings
from fednode.errors import ConfigError, DataError, StateError
from fednode.settings.faults import GONE
from fednode.settings.output import PageSettings
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import Settings, load_settings
from fednode.storage.store import Store
from tests.unit.commands.run import PEERS, Fednode


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


def test_a_damaged_file_of_a_state_directory_is_named(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    shutil.copytree(tuned / "state", tmp_path / "state")
    for name in (SETTINGS, CLASSES):
        path = tmp_path / "state" / name
        held = path.read_bytes()
        path.write_bytes(b"lemon\n\xff\xfe\x00")
        said = fednode.fault("predict", "--state", tmp_path / "state", tuned / "images")
        assert f"{path}, line 2, is not UTF-8 text: start the node once more" in said
        path.write_bytes(held)
    path = tmp_path / "state" / "settings.yaml"
    path.write_text("data: [\n")
    said = fednode.fault("predict", "--state", tmp_path / "state", tuned / "images")
    assert f"{path} is not valid YAML: line 2" in said
    assert said.endswith(": start the node once more on this directory to write it.")


def test_settings_that_were_removed_since_are_left_out(tuned: Path, tmp_path: Path) -> None:
    """A state directory's settings.yaml holds every key of the version that wrote it."""
    shutil.copytree(tuned / "state", tmp_path / "state")
    path = tmp_path / "state" / SETTINGS
    tree = yaml.safe_load(path.read_text())
    for name in GONE:
        section, _, key = name.partition(".")
        if section == "merge":  # inside `policy`, for policies that have it (app/test_saved.py)
            continue
        if key:
            tree.setdefault(section, {})[key] = "of before"
        else:
            tree[section] = {"of": "before"}
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    assert recall(tmp_path / "state").settings == recall(tuned / "state").settings
    with pytest.raises(ConfigError, match="was removed"):
        load_settings(path, {})


def test_a_start_goes_on_from_a_directory_that_was_tied_to_removed_settings(tmp_path: Path) -> None:
    peers = tmp_path / "peers.yaml"
    peers.write_text(PEERS)
    plan = make(peers, None, "a", ("tuning.kind=closed-form",), tmp_path / "state")
    facts = facts_of(plan, learner_of(plan.settings, "a"))
    store = Store(plan.state)
    store.bind({**facts, **dict.fromkeys(GONE, "of before")})
    store.bind(facts, free_facts(plan))
    with pytest.raises(StateError, match="was made with"):
        store.bind(facts)
    store.close()


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
    for name in "cdef":
        (root / name).mkdir()
        (root / name / "journal.db").write_text("")
    with pytest.raises(StateError, match=r"6 nodes have run here.*/e and 1 more\)"):
        find(None)


def test_a_state_directory_is_found_by_the_name_of_its_node(
    fednode: Fednode, tmp_path: Path
) -> None:
    """peers.yaml in the folder says which mesh is meant if nodes of two meshes have the name."""
    root = tmp_path / ".local/state/fednode"
    with pytest.raises(StateError, match=r"There is no folder a, and no node of this name has run"):
        find(Path("a"))
    for mesh in ("m", "n"):
        (root / mesh / "a").mkdir(parents=True)
        (root / mesh / "a" / "journal.db").write_text("")
        if mesh == "m":
            assert find(Path("a")) == root / "m/a"
    with pytest.raises(StateError, match=r"2 nodes called a have run here: choose one with"):
        find(Path("a"))
    (tmp_path / "peers.yaml").write_text("mesh: n\ninsecure: true\n")
    assert find(Path("a")) == root / "n/a"
    assert find(Path("runs/a")) == Path("runs/a")
    (tmp_path / "a").mkdir()
    assert find(Path("a")) == Path("a")


def test_any_key_of_the_mesh_on_this_machine_may_ask(fednode: Fednode, tmp_path: Path) -> None:
    root = tmp_path / ".local/state/fednode/clinic"
    with pytest.raises(ConfigError, match=f"no node of it has a key below {root}: give a node's"):
        key_folder("clinic", None)
    assert fednode("init", "--tls", "--nodes", "2", "--mesh", "clinic") == 0
    assert key_folder("clinic", None) == root / "a"
    assert key_folder("clinic", Path("b")) == root / "b"
    assert key_folder("clinic", Path("elsewhere/b")) == Path("elsewhere/b")
    (tmp_path / "b").mkdir()
    assert key_folder("clinic", Path("b")) == Path("b")
    assert fednode.fault("status").startswith("None of the 2 nodes of peers.yaml answers")


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
    with pytest.raises(ConfigError, match=r"topology.kind is 'ring'"):
        make(peers, config, None, ("policy.name=promptfl", "topology.kind=ring"), None)


def test_secrets_do_not_stay_in_the_state_directory() -> None:
    settings = Settings(token="one-time-secret", page=PageSettings(token="a-long-page-token"))
    text = settings_text(settings)
    assert "secret" not in text
    assert "a-long" not in text


def test_prompts_from_python(fednode: Fednode, tuned: Path, tmp_path: Path) -> None:
    prompts = package.load(tuned / "state")
    assert (prompts.policy, prompts.model, prompts.round) == ("zerodfl", "fednode-mini", 1)
    assert prompts.classes == ("lemon", "sea")
    images = [tuned / "images" / name / "1.png" for name in prompts.classes]
    assert prompts.names(images) == ["lemon", "sea"]
    found = prompts.probabilities(images, ["sea", "lemon", "a house"])
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-5)
    file = tmp_path / "prompts.safetensors"
    assert fednode("export", "--state", tuned / "state", file) == 0
    again = package.load(file)
    assert (again.arrays, again.classes, again.round) == (prompts.arrays, prompts.classes, 1)
    np.testing.assert_array_equal(again.probabilities(images), prompts.probabilities(images))
    features, scale = again.text_features(["lemon"])
    assert features.shape[0] == 1
    assert scale > 1
    with pytest.raises(DataError, match="There is no image file"):
        prompts.names(["nothing.png"])
    with pytest.raises(ConfigError, match="empty name"):
        prompts.names(images, ["", "a"])
    lemon, sea = images
    judged = prompts.evaluate([lemon, sea, sea], ["lemon", "sea", "lemon"])
    assert judged.confusion.tolist() == [[1, 1], [0, 1]]
    assert [one.sensitivity for one in judged.by_class] == [0.5, 1.0]
    assert judged.by_class[0].auc == pytest.approx(0.75)  # one pair won, one tied: the same image
    with pytest.raises(ConfigError, match="3 images and 2 labels: give at least one image"):
        prompts.evaluate([lemon, sea, sea], ["lemon", "sea"])
    with pytest.raises(ConfigError, match="labels holds 'lime'; each label must be one of lemon"):
        prompts.evaluate([lemon], ["lime"])
    with pytest.raises(ConfigError, match="classes names a class twice"):
        prompts.evaluate([lemon], ["lemon"], ["lemon", "lemon"])
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        package.lode  # noqa: B018


def test_prompts_of_another_model_are_refused(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    """A directory that version 1 of the embedded model was tuned in: its fingerprint differs."""
    state = tmp_path / "state"
    shutil.copytree(tuned / "state", state)
    with contextlib.closing(sqlite3.connect(state / "journal.db")) as rows, rows:
        rows.execute("update settings set value = ? where key = 'backbone'", ("1" * 64,))
    said = "was tuned with another model, or another version of it (fingerprint 111111111111)"
    image = tuned / "images" / "sea" / "0.png"
    assert said in fednode.fault("eval", "--state", state)
    assert said in fednode.fault("predict", "--state", state, image)
    assert said in fednode.fault("export", "--state", state, tmp_path / "prompts.safetensors")
    assert not (tmp_path / "prompts.safetensors").exists()
    with pytest.raises(StateError, match="was tuned with another model"):
        package.load(state)


def test_explain_prints_words_and_draws_pictures(
    fednode: Fednode, tuned: Path, tmp_path: Path
) -> None:
    state, images = tuned / "state", tuned / "images"
    assert fednode("explain", "words", "--state", state, "--top", "2", "--format", "json") == 0
    (rows,) = json.loads(fednode.out).values()
    assert {len(row) for row in rows} == {2}
    assert all(row[0]["distance"] <= row[1]["distance"] for row in rows)
    assert fednode("explain", "words", "--state", state) == 0
    assert "nearest" in fednode.out
    lemon, picture = images / "lemon" / "0.png", tmp_path / "maps.png"
    assert fednode("explain", "maps", lemon, "--state", state, "--to", picture) == 0
    with Image.open(picture) as drawn:
        assert drawn.width > 2 * drawn.height  # one row of three
    assert "0.png: predicted: " in fednode.out
    assert ", true: lemon\n" in fednode.out
    given = ("explain", "maps", lemon, "--class", "sea", "--state", state, "--to", picture)
    assert fednode(*given) == 0
    assert "0.png: looked for: sea, true: lemon\n" in fednode.out
    elsewhere = tmp_path / "photo.png"
    shutil.copy(lemon, elsewhere)
    assert fednode("explain", "maps", elsewhere, "--state", state, "--to", picture) == 0
    assert "true:" not in fednode.out
    plane = tmp_path / "tsne.png"
    assert fednode("explain", "scatter", images, "--state", state, "--to", plane) == 0
    assert "tunes no visual prompts: images are seen as before" in fednode.out
    assert plane.stat().st_size > 5_000


def test_what_cannot_be_explained_is_said(fednode: Fednode, tuned: Path, tmp_path: Path) -> None:
    state, lemon = tuned / "state", tuned / "images" / "lemon"
    assert fednode("explain", "words", "--state", state, "--top", "0") == 2
    assert "--top is 0" in fednode.err
    assert fednode("explain", "scatter", lemon, "--state", state) == 3
    assert "holds 6 images of 1 classes" in fednode.err
    assert fednode("explain", "maps", *[lemon] * 3, "--state", state) == 3
    assert "18 images were given; a picture shows 1 to 12" in fednode.err
    nowhere = tmp_path / "none" / "maps.png"
    assert fednode("explain", "maps", lemon / "0.png", "--state", state, "--to", nowhere) == 4
    assert "cannot be written" in fednode.err


def test_python_explains_as_well(tuned: Path) -> None:
    prompts, lemon = package.load(tuned / "state"), tuned / "images" / "lemon" / "0.png"
    plain, found = prompts.maps([lemon], ["lemon"])
    assert plain.shape == found.shape
    assert plain.ndim == 3
    assert float(found.max()) <= 1.0
    with pytest.raises(ConfigError, match="1 images and 2 classes: give one for each"):
        prompts.maps([lemon], ["lemon", "sea"])
    features, changed = prompts.image_features([lemon])
    assert (len(features), changed) == (1, None)
