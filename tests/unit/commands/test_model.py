"""`fednode check --model`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fednode.commands.check import check
from fednode.commands.model import NEEDS
from tests.unit.clip import folders


def test_check_shows_what_a_folder_takes(tmp_path: Path) -> None:
    name = f"local-dir:{folders.biomedical(tmp_path)}"
    said = CliRunner().invoke(check, ["--model", name, "--format", "json"], standalone_mode=False)
    (row,) = json.loads(said.stdout)
    assert (row["fault"], row["text"], row["visual"], row["features"]) == ("", "", True, 32)
    assert set(row["policies"]) == set(NEEDS) - {"feddpt"}
    assert row["template"] == "this is a photo of {}"
    assert said.return_value == 0


def test_check_names_the_policies_of_a_model() -> None:
    said = CliRunner().invoke(check, ["--model", "RN50"], standalone_mode=False)
    assert said.stdout.splitlines() == [
        "RN50: 102 million weights, 1024 features",
        "learned text prompts: yes",
        "deep text prompts: yes",
        "visual prompts: no",
        "patches: no",
        "tokens of a text: 77",
        "policies: diprompt, fedclip, fedpgp, fedtpg, gda, local, promptfl, zerodfl",
        "hand-written prompt (tuning.template: auto): a photo of a {}.",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--model", "ViT-B-61"], "model.name is 'ViT-B-61', which is neither fednode-mini"),
        (["--model", "local-dir:/nowhere"], "open_clip_config.json cannot be read"),
    ],
)
def test_a_model_that_cannot_be_had_is_a_sentence(words: list[str], sentence: str) -> None:
    said = CliRunner().invoke(check, words, standalone_mode=False)
    assert sentence in said.stdout
    assert said.stdout.count("\n") == 1
    assert said.return_value == 2
