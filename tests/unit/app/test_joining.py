"""What a newcomer takes from the node that made its link, and what it says of itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fednode.app.joining import (
    Invitation,
    images_line,
    leaves,
    model_line,
    peers_of,
    settings_text,
    strange,
    write,
)
from fednode.app.plan import NodePlan, learner_of, make
from fednode.data.base import Image, NodeData, Split
from fednode.errors import ConfigError
from fednode.identity.enrol import sponsor
from fednode.identity.lease import Statement
from fednode.settings.agreed import taken
from fednode.settings.peers import load_peers
from tests.unit.app.founders import MESH, founded, identity_of, images, link_to
from tests.unit.identity.people import LISTED, NOW

PROMPTS = {"policy": {"name": "promptfl"}, "rounds": {"max": 3}}


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodePlan:
    return founded(tmp_path, monkeypatch)


def invitation(plan: NodePlan, settings: object) -> Invitation:
    link = link_to(plan, "b")
    right = Statement(kind="sponsor", mesh=MESH, name="a", id=identity_of(plan).id, issued=NOW)
    return Invitation(
        link=link,
        admitter=sponsor(plan.address, link.made_by),
        right=right,
        settings=taken(json.dumps(settings)),
        members=("a",),
        model="m",
    )


def test_the_files_of_a_newcomer_are_a_node_of_the_mesh(tmp_path: Path, plan: NodePlan) -> None:
    told = invitation(plan, PROMPTS)
    text = settings_text(told, images(tmp_path / "images"), None)
    write(tmp_path / "b", text, peers_of(told, "127.0.0.1:9"))
    made = make(tmp_path / "b/peers.yaml", tmp_path / "b/node.yaml", None, (), None)
    assert (made.name, made.address, made.settings.rounds.max) == ("b", "127.0.0.1:9", 3)
    assert load_peers(tmp_path / "b/peers.yaml").sponsors == ("a",)
    assert made.state == plan.state.parent / "b"
    said = leaves(made, learner_of(made.settings, "b"))
    assert said.startswith("at most ")
    assert said.endswith("numbers a round, 1 class name and the number of images to train on (32)")


def test_images_that_are_kept_from_training_are_counted() -> None:
    def split(count: int) -> Split:
        return Split(("one",), tuple(Image(Path(str(at)), 0) for at in range(count)))

    data = NodeData(train=split(1108), validation=split(0), own=split(24))
    assert images_line(data) == "1,108 to train on, 24 kept from training for tests"
    data = NodeData(train=split(5), validation=split(2), own=split(0))
    assert images_line(data) == "5 to train on, 2 kept from training for validation"


def test_class_sums_are_said_for_each_class(tmp_path: Path, plan: NodePlan) -> None:
    told = invitation(plan, {"policy": {"name": "gda"}})
    text = settings_text(told, images(tmp_path / "images"), None)
    write(tmp_path / "b", text, peers_of(told, "127.0.0.1:9"))
    made = make(tmp_path / "b/peers.yaml", tmp_path / "b/node.yaml", None, (), None)
    said = leaves(made, learner_of(made.settings, "b"))
    assert said.startswith("9 numbers for each of 2 classes, 2 class names")


def test_the_model_is_shown_by_its_fingerprint_whoever_loads_it_first(plan: NodePlan) -> None:
    told = invitation(plan, PROMPTS)
    assert model_line(told, "") == "m"
    early = "m, fingerprint 0123456789ab here; a still loads its own, and nodes compare them"
    assert model_line(told, "0123456789abcdef") == early
    ready = replace(told, model="m, fingerprint 0123456789ab")
    assert model_line(ready, "0123456789abcdef") == ready.model
    with pytest.raises(ConfigError, match="the one here has ffff: take the same file"):
        model_line(ready, "ffff")


def test_a_model_that_each_site_has_must_be_given(tmp_path: Path, plan: NodePlan) -> None:
    data = images(tmp_path / "images")
    for model, wanted in (({"name": "local-dir:/x"}, "local-dir:FOLDER"),
                          ({"name": "ViT-B-16", "pretrained": "/x.pt"}, "FILE")):  # fmt: skip
        told = invitation(plan, {**PROMPTS, "model": model})
        with pytest.raises(ConfigError, match=f"give yours with --model {wanted}; its digest"):
            settings_text(told, data, None)
        assert "my-model" in settings_text(told, data, "my-model")
    with pytest.raises(ConfigError, match="The mesh names no policy"):
        settings_text(invitation(plan, {}), data, None)


def test_a_key_of_another_mesh_with_the_same_name_is_noticed(plan: NodePlan) -> None:
    link, own = link_to(plan, "b"), identity_of(plan)
    assert not strange(own, link)
    assert strange(own, replace(link, mesh_key=LISTED["a"]))
