"""An experiment for each value of one key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from fednode.lab.experiment.settings import Experiment
from fednode.lab.experiment.vary import Variant
from tests.unit.lab.experiment.test_experiment import read, start, write


def test_one_command_runs_an_experiment_for_each_value(
    tmp_path: Path, folder: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = [
        {"label": "zero-shot", "policy": "zero-shot"},
        {"label": "local", "policy": "local", "paper": {"1": 40.0, "mean": 50.5}},
    ]
    changed = {"methods": methods, "seeds": [1], "vary": {"data.shots": [1, 2]}}
    file, out = write(tmp_path / "trial.yaml", folder, **changed), tmp_path / "out"
    code, shown, err = start(capsys, file, "--set", model, "--out", out)
    assert code == 0, err
    assert "4/4 local, seed 1" in shown
    assert "| method | 1 | 2 | mean |" in shown
    assert "| local (paper) | 40 | - | 50.5 |" in shown
    # Each column again, from an experiment of that value alone.
    alone = yaml.safe_load(file.read_text())
    del alone["vary"]
    means = []
    for shots in (1, 2):
        alone["data"]["shots"] = shots
        one, into = tmp_path / f"{shots}.yaml", tmp_path / f"alone-{shots}"
        one.write_text(yaml.safe_dump(alone))
        start(capsys, one, "--set", model, "--out", into)
        inside = out / f"data.shots-{shots}"
        assert (inside / "scores.csv").read_bytes() == (into / "scores.csv").read_bytes()
        row = json.loads((into / "report.json").read_text())["rows"][1]
        means.append(row["figures"]["avg"]["mean"])
    assert f"| local | {means[0]:.1f} | {means[1]:.1f} | {sum(means) / 2:.1f} |" in shown
    assert len(read(out / "scores.csv")) == 2 * len(read(tmp_path / "alone-1/scores.csv"))


@pytest.mark.parametrize(
    ("vary", "fault"),
    [
        ({"data.shots": []}, "vary.data.shots is []; give one value or more"),
        ({"data.shots": [1, 1]}, "give one value or more, none twice"),
        ({"data.shots": [1], "rounds": [1]}, "vary names 2 keys (data.shots, rounds)"),
        ({"data.shot": [1]}, "data.shot"),
        ({"data.shots": [-1]}, "data.shots"),
    ],
)
def test_a_wrong_value_to_vary_is_named(
    tmp_path: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    vary: dict[str, list[object]],
    fault: str,
) -> None:
    file = write(tmp_path / "trial.yaml", folder, vary=vary)
    code, _, err = start(capsys, file, "--out", tmp_path / "out")
    assert code == 2
    assert fault in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("value", "title"),
    [
        ("data/pacs/", "pacs"),
        (4, "4"),
        (0.5, "0.5"),
        (True, "true"),
        ({"name": "ViT-B-16", "pretrained": "openai"}, "ViT-B-16"),
        (["photo", "sketch"], "photo, sketch"),
    ],
)
def test_a_value_is_shown_by_its_last_part(value: Any, title: str) -> None:
    made = Variant(value, cast("Experiment", None), Path("out"))
    assert made.title == title
