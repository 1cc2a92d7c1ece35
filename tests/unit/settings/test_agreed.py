"""Shared settings are those of the method; a newcomer takes no other key, whoever sends it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fednode.errors import ConfigError
from fednode.settings.agreed import shared, taken
from fednode.settings.read import Source, settings_of


def test_the_settings_of_the_method_are_shared_and_those_of_a_site_are_not(tmp_path: Path) -> None:
    tree = {
        "seed": 7,
        "policy": {"name": "fedpgp", "rank": 2},
        "rounds": {"max": 9, "start": {"peers": 2}},
        "data": {"path": "/secret"},
        "privacy": {"clip": 1.0},
        "page": {"token": "t" * 20},
    }
    text = shared(settings_of(Source("test", tree)))
    found = taken(text)
    assert found["seed"] == 7
    assert found["policy"] == {"name": "fedpgp", "rank": 2}
    assert found["rounds"] == {"max": 9, "start": {"peers": 2}}
    assert set(found) <= {"seed", "policy", "rounds", "model", "tuning", "topology"}
    assert "secret" not in text


def test_keys_of_a_site_are_not_taken_from_a_peer() -> None:
    evil = {
        "data": {"path": "/etc", "shots": 0},
        "privacy": {"clip": None},
        "page": {"listen": "0.0.0.0:80"},
        "tuning": {"lr": 9, "context_length": 4},
        "rounds": {"deadline_s": 1, "max": 3},
        "state_dir": "/",
        "model": {"name": "local-dir:/etc", "pretrained": "/etc/passwd", "device": "cuda"},
    }
    assert taken(json.dumps(evil)) == {
        "tuning": {"context_length": 4},
        "rounds": {"max": 3},
        "model": {"name": "local-dir:FILE", "pretrained": "FILE"},
    }


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 9000, "x" * 20_000])
def test_other_texts_get_a_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match="settings of the mesh cannot be read"):
        taken(text)
