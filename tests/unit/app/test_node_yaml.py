"""Files for a new node: every key has its comment, and those that are given have a value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fednode.app.node_yaml import (
    mesh_text,
    node_text,
    with_shared,
    with_values,
)
from fednode.settings.peers import PeerEntry, Peers, load_peers
from fednode.settings.read import Settings, Source, load_settings, settings_of
from fednode.settings.shared import shared_tree
from fednode.shipped import config_file
from fednode.transports.address import RelayEntry
from tests.unit.identity.people import SmallMesh

TEXT = config_file("node.yaml").read_text(encoding="utf-8")


def test_values_stand_where_their_comments_are(tmp_path: Path) -> None:
    tree = {
        "seed": 7,
        "name": "b",
        "policy": {"name": "fedpgp", "rank": 2},
        "rounds": {"max": 9, "start": {"peers": 2}},
        "tuning": {"init_words": "a photo of a", "context_length": 4},
        "model": {"pretrained": None},
    }
    (tmp_path / "images").mkdir()
    text = node_text(tree, tmp_path / "images")
    settings = load_settings_of(tmp_path, text)
    assert (settings.seed, settings.name, settings.rounds.max) == (7, "b", 9)
    assert settings.rounds.start.peers == 2
    assert settings.policy.name == "fedpgp"
    assert settings.policy.config.rank == 2
    assert settings.tuning.init_words == "a photo of a"
    assert (settings.data.path, settings.data.shots) == (str(tmp_path / "images"), 0)
    assert settings.data.seed == 1
    assert text.count("\n") >= TEXT.count("\n") - 40, "the comments are still there"
    assert with_values(TEXT, {}) == TEXT


def load_settings_of(folder: Path, text: str) -> Settings:
    (folder / "node.yaml").write_text(text)
    return load_settings(folder / "node.yaml", {})


@pytest.mark.parametrize(
    "peers",
    [
        Peers("m", (PeerEntry("a", "127.0.0.1:7100"),), insecure=True),
        Peers(
            "m",
            (PeerEntry("a", "10.0.0.1:7100"), PeerEntry("b", "relay")),
            mesh_key=SmallMesh().mesh_key_text,
            relays=(RelayEntry("r", "10.0.0.9:443"),),
        ),
    ],
)
def test_a_mesh_is_written_as_it_is_read(tmp_path: Path, peers: Peers) -> None:
    (tmp_path / "peers.yaml").write_text(mesh_text(peers))
    assert load_peers(tmp_path / "peers.yaml") == peers


FORMS = {
    "shipped": TEXT,
    "flow": "# mine\nname: a\npolicy: {name: promptfl}\nrounds: {max: 3, deadline_s: 9.0}\n",
    "block": "# mine\nname: a\n"
    "policy:\n  name: promptfl\nrounds:\n  max: 3\nlimits:\n  messages_s: 9\n",
    "cleared": "# mine\ntuning:\n  template: 'an x-ray of {}'\n  lr: 0.1\n\nseed: 2\n",
    "empty": "",
}
MESHES: dict[str, dict[str, Any]] = {
    "longer": {"policy": {"name": "zerodfl"}, "rounds": {"max": 20, "start": {"peers": 2}}},
    "gda": {"policy": {"name": "gda"}},
    "nested": {"policy": {"name": "promptfl", "merge": {"rule": "median"}}, "rounds": {"max": 9}},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mesh", MESHES)
def test_the_shared_settings_of_a_mesh_replace_those_of_a_file(
    tmp_path: Path, form: str, mesh: str
) -> None:
    """Whatever form the file has, its other keys stay; comments do if it is as `init` writes it."""
    wanted = shared_tree(settings_of(Source("test", MESHES[mesh])))
    text = with_shared(FORMS[form], wanted)
    before = load_settings_of(tmp_path, FORMS[form] or "name: null\n")
    after = load_settings_of(tmp_path, text)
    assert shared_tree(after) == wanted
    assert (after.name, after.limits, after.data) == (before.name, before.limits, before.data)
    assert after.rounds.deadline_s == before.rounds.deadline_s
    if form == "shipped":
        assert text.count("\n") >= TEXT.count("\n") - 25, "the comments are still there"
    assert with_shared(text, wanted) == text


def test_values_that_text_cannot_take_are_written_all_the_same() -> None:
    odd = {"policy": {"name": "zerodfl"}, "tuning": {"template": "a/{}'\n# b\nstate_dir: /c"}}
    for text in FORMS.values():
        tree = yaml.safe_load(with_shared(text, odd))
        assert tree["tuning"]["template"] == odd["tuning"]["template"]
        assert "state_dir" not in {key for key, value in tree.items() if value}
