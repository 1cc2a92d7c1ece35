"""Shared settings are those of the method; no other key is taken of a peer; their differences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fednode.errors import ConfigError
from fednode.settings.read import Source, Tree, settings_of
from fednode.settings.shared import (
    changes,
    overlay,
    parse,
    shared_text,
)


def test_the_settings_of_the_method_are_shared_and_those_of_a_site_are_not(tmp_path: Path) -> None:
    tree = {
        "seed": 7,
        "policy": {"name": "fedpgp", "rank": 2},
        "tuning": {"template": "an x-ray of {}"},
        "rounds": {"max": 9, "start": {"peers": 2}},
        "data": {"path": "/secret"},
        "privacy": {"clip": 1.0},
        "page": {"token": "t" * 20},
    }
    text = shared_text(settings_of(Source("test", tree)))
    found = parse(text)
    assert found["seed"] == 7
    assert found["policy"] == {"name": "fedpgp", "rank": 2}
    assert found["rounds"] == {"max": 9, "start": {"peers": 2}}
    assert found["tuning"]["template"] == "an x-ray of {}"
    assert set(found) <= {"seed", "policy", "rounds", "model", "tuning", "topology"}
    assert "secret" not in text


def test_keys_of_a_site_are_not_taken_from_a_peer() -> None:
    evil = {
        "policy": {"name": "gda"},
        "data": {"path": "/etc", "shots": 0},
        "privacy": {"clip": None},
        "page": {"listen": "0.0.0.0:80"},
        "tuning": {"lr": 9, "context_length": 4},
        "rounds": {"deadline_s": 1, "max": 3},
        "state_dir": "/",
        "model": {"name": "local-dir:/etc", "pretrained": "/etc/passwd", "device": "cuda"},
    }
    assert parse(json.dumps(evil)) == {
        "policy": {"name": "gda"},
        "tuning": {"context_length": 4},
        "rounds": {"max": 3},
        "model": {"name": "local-dir:FILE", "pretrained": "FILE"},
    }


@pytest.mark.parametrize(
    "text",
    [
        *("", "[1]", "{", "[" * 9000, "x" * 20_000),
        *("{}", '{"policy": 5}', '{"policy": {}}', '{"policy": {"name": 5}}', b"\xff"),
    ],
)
def test_other_texts_get_a_sentence(text: str | bytes) -> None:
    with pytest.raises(ConfigError, match="settings of the mesh cannot be read"):
        parse(text)


def source(**tree: Any) -> Source:
    return Source("node.yaml", tree)


def test_the_meshs_settings_hold_and_those_of_the_site_stay() -> None:
    own = source(
        seed=3,
        policy={"name": "zerodfl", "recipients": 3},
        rounds={"max": 9, "deadline_s": 5.0, "start": {"peers": 0}},
        data={"shots": 4},
        tuning={"lr": 0.5, "init_words": "a picture of a"},
    )
    mesh = {
        "seed": 1,
        "policy": {"name": "promptfl"},
        "rounds": {"max": 20, "start": {"peers": 4}},
        "tuning": {"context_length": 4},
        "data": {"shots": 1},
    }
    found = overlay(own, mesh)
    settings = settings_of(found)
    assert (settings.seed, settings.policy.name, settings.rounds.max) == (1, "promptfl", 20)
    assert (settings.rounds.deadline_s, settings.data.shots, settings.tuning.lr) == (5.0, 4, 0.5)
    assert settings.tuning.init_words is None
    assert settings.rounds.start.peers == 4
    assert own.tree["rounds"]["max"] == 9


def test_each_site_has_a_file_of_its_own_for_a_model_that_is_one(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    mesh = {"model": {"name": "ViT-B-16", "pretrained": "FILE"}, "policy": {"name": "promptfl"}}
    own = source(model={"name": "ViT-B-32", "pretrained": str(file)})
    settings = settings_of(overlay(own, mesh))
    assert (settings.model.name, settings.model.pretrained) == ("ViT-B-16", str(file))
    with pytest.raises(
        ConfigError, match=r"model.pretrained is 'openai', and the model of this me"
    ):
        overlay(source(model={"pretrained": "openai"}), mesh)
    with pytest.raises(ConfigError, match=r"model.name is null, and the model of this mesh is a f"):
        overlay(source(), {"model": {"name": "local-dir:FILE"}})


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"rounds": {"max": 20}}, {"rounds": {"max": 30}}, {"rounds.max": "rounds.max: 20 -> 30"}),
        ({"seed": 1}, {"seed": 1}, {}),
        ({"policy": {"x": True}}, {"policy": {"x": 1}}, {"policy.x": "policy.x: true -> 1"}),
        ({"seed": 1}, {}, {"seed": "seed: 1 -> null"}),
        # Text of others does not reach the terminal as it is.
        ({"seed": 1}, {"seed": "\x1b[2J\u202e"}, {"seed": "seed: 1 -> \\x1b[2J\\u202e"}),
    ],
)
def test_each_changed_key_is_a_line_with_both_values(
    before: Tree, after: Tree, found: dict[str, str]
) -> None:
    assert changes(before, after) == found
