"""`fednode models` and `fednode check --model`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fednode.commands.check import check
from fednode.commands.models import NEEDS, models, show
from tests.unit.clip import folders


def test_the_table_of_some_models() -> None:
    said = CliRunner().invoke(models, ["ViT-S-32"], standalone_mode=False)
    lines = said.stdout.splitlines()
    assert lines[0].split() == (
        ["model", "weights", "text", "deep", "visual", "patches", "features", "reads", "name"]
    )
    assert lines[1].split()[0] == "ViT-S-32"
    assert lines[1].split()[2:] == ["yes", "yes", "yes", "yes", "384", "77", "58"]
    assert lines[-1] == (
        "2 models: 2 with learned text prompts, 2 with visual prompts, 2 with features."
    )


def test_a_part_of_no_name_is_a_sentence() -> None:
    said = CliRunner().invoke(models, ["no such thing"], standalone_mode=False)
    assert str(said.exception).startswith("No architecture of open_clip has 'no such thing' in its")


def test_check_shows_what_a_folder_takes(tmp_path: Path) -> None:
    name = f"local-dir:{folders.biomedical(tmp_path)}"
    said = CliRunner().invoke(check, ["--model", name, "--format", "json"], standalone_mode=False)
    (row,) = json.loads(said.stdout)
    assert (row["fault"], row["text"], row["visual"], row["features"]) == ("", "", True, 32)
    assert set(row["policies"]) == set(NEEDS)
    assert row["template"] == "this is a photo of {}"
    assert said.return_value == 0


def test_check_names_the_policies_of_a_model() -> None:
    said = CliRunner().invoke(check, ["--model", "RN50"], standalone_mode=False)
    wanted = "policies: diprompt, fedclip, fedpgp, fedtpg, gda, local, promptfl, zerodfl."
    assert wanted in said.stdout.splitlines()
    assert "hand-written prompt (tuning.template: auto): a photo of a {}." in said.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--model", "ViT-B-61"], "model.name is 'ViT-B-61', which is neither fednode-mini"),
        (["--model", "local-dir:/nowhere"], "open_clip_config.json cannot be read"),
        (["--model", "ViT-B-16", "--pretrained", "x.pt"], "There is no checkpoint file x.pt"),
    ],
)
def test_a_model_that_cannot_be_had_is_a_sentence(words: list[str], sentence: str) -> None:
    said = CliRunner().invoke(check, words, standalone_mode=False)
    assert sentence in said.stdout
    assert said.stdout.count("\n") == 1
    assert said.return_value == 2


def test_nothing_is_a_table_without_rows(capsys: pytest.CaptureFixture[str]) -> None:
    show([], False)
    assert capsys.readouterr().out == ""
