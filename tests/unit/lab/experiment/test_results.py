"""`fednode.experiment` and methods of one's own: rows, differences, a picture, and sentences.

Method: experiments come through the public doors, with two built-in classes and one round.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import fednode
from fednode import registry
from fednode.cli import main
from fednode.errors import ConfigError
from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.run import cells
from fednode.policy import Averaging, AveragingConfig, CoOp, Tensors

SCENE: Mapping[str, Any] = {
    "data": {"path": "builtin", "shots": 2, "test_images": 2,
             "classes": ["accordion", "anchor", "barrel", "beaver"]},
    "protocol": {"kind": "base-to-new", "clients": 2},
    "rounds": 1,
    "curve_every": 1,
    "seeds": [1, 2],
    "tuning": {"context_length": 2, "epochs": 1},
    "methods": ["local"],
}  # fmt: skip
MODULE = """
from dataclasses import dataclass

from fednode.policy import Averaging, AveragingConfig, CoOp


@dataclass(frozen=True)
class MineConfig(AveragingConfig):
    share: float = 0.5


class Mine(Averaging):
    name = "mine"
    config_type = MineConfig
    prompts = CoOp
"""


class Doubled(Averaging):
    """PromptFL under another name."""

    name = "doubled"
    config_type = AveragingConfig
    prompts = CoOp


class Wrong(Doubled):
    def first(self, initial: Tensors) -> Any:
        return initial["prompt"]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no class outlive its test."""
    monkeypatch.setattr(registry, "_ADDED", {})


def lines() -> tuple[list[str], Any]:
    said: list[str] = []
    return said, said.append


def test_a_class_is_compared_by_value_and_rows_are_of_plain_types() -> None:
    said, note = lines()
    found = fednode.experiment(SCENE, {"mine": Doubled, "promptfl": "promptfl"}, progress=note)
    assert found.faults == {}
    assert [line.split(",")[0] for line in said[:3]] == ["1/6 local", "2/6 mine", "3/6 promptfl"]
    assert len(found) == 3 * 2 * 3 * 2  # methods, seeds, tests, nodes
    assert {tuple(map(type, row.values())) for row in found} == {(str, int, str, str, str, float)}
    assert list(found[0]) == ["method", "seed", "left_out", "test", "node", "accuracy"]
    accuracy = {
        label: [row["accuracy"] for row in found if row["method"] == label]
        for label in ("local", "mine", "promptfl")
    }
    assert accuracy["mine"] == accuracy["promptfl"], "the same method under two names"
    for row in found.differences(against="promptfl"):
        if row["method"] == "mine":
            assert (row["mean"], row["low"], row["high"], row["wins"]) == (0.0, 0.0, 0.0, 0)
    assert {row["control"] for row in found.differences()} == {"local"}
    with pytest.raises(ConfigError, match="against is 'fedavg', which is no method; there are"):
        found.differences("fedavg")
    pytest.importorskip("matplotlib")
    titles = [axis.get_title() for axis in found.plot().axes]
    assert titles[:2] == ["accuracy on base classes (%)", "accuracy on new classes (%)"]


def test_a_class_that_cannot_run_is_a_sentence_and_the_others_go_on() -> None:
    said, note = lines()
    scene = {**SCENE, "seeds": [1]}
    found = fednode.experiment(scene, {"wrong": Wrong}, progress=note)
    assert {row["method"] for row in found} == {"local"}
    assert found.faults == {
        "wrong, seed 1": "policy doubled: Wrong.first fails: KeyError: 'prompt'"
    }
    assert "2/2 wrong, seed 1: failed: policy doubled: Wrong.first fails" in said[1]


@pytest.mark.parametrize(
    ("source", "methods", "said"),
    [
        (SCENE, {"mine": int}, "builtins:int.*int is no method: derive it from Averaging"),
        (SCENE, {"mine": {"policy": {"name": Doubled, "weighs": 1}}}, "policy.weighs"),
        (SCENE, {"local": "promptfl"}, "methods names 'local' twice"),
        ({**SCENE, "methods": "local"}, None, "methods is not a list"),
        ({**SCENE, "vary": {"rounds": [1, 2]}}, None, "vary is for the command"),
        ({**SCENE, "round": 3}, None, "round"),
        (Path("gone.yaml"), None, "There is no file gone.yaml"),
    ],
)
def test_wrong_input_is_one_sentence_before_anything_runs(
    source: Any, methods: Any, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        fednode.experiment(source, methods)


def file(folder: Path, name: str, **policy: Any) -> Path:
    path = folder / "my.yaml"
    method = {"label": "mine", "policy": {"name": name, **policy}}
    tree = {**SCENE, "title": "mine", "seeds": [1], "methods": ["local", method]}
    path.write_text(yaml.safe_dump(tree))
    return path


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of its own name, which no other test has imported."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = "method_" + re.sub(r"\W", "_", tmp_path.name)
    (tmp_path / f"{name}.py").write_text(MODULE)
    return tmp_path / f"{name}.py"


def test_the_command_runs_a_module_beside_its_file_in_processes_of_its_own(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(own.parent)
    path = file(own.parent, f"{own.stem}:Mine", share=0.7)
    with pytest.raises(SystemExit, match="0"):
        main(["experiment", str(path), "--out", "out", "--workers", "2"])
    assert "| mine | 1 | 1 |" in capsys.readouterr().out
    assert len([*(own.parent / "out/cells").glob("mine_*.json")]) == 1


def test_a_changed_module_makes_its_cells_anew(own: Path) -> None:
    loaded = load_experiment(file(own.parent, f"{own.stem}:Mine"))
    before = {cell.method.label: cell.key for cell in cells(loaded)}
    own.write_text(MODULE + "\n# another loss\n")
    after = {cell.method.label: cell.key for cell in cells(loaded)}
    assert before["local"] == after["local"]
    assert before["mine"] != after["mine"]


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        (MODULE, "{}:Nine", r"has no Nine\.$"),
        (MODULE, "{}:MineConfig", "MineConfig is no method"),
        (MODULE, "nowhere:Mine", "there is no module nowhere: write nowhere.py"),
        (MODULE, "{}", r"which is no policy"),
        ("import nowhere", "{}:Mine", "cannot be imported: ModuleNotFoundError: No module"),
    ],
)
def test_a_wrong_module_is_one_sentence(own: Path, module: str, name: str, said: str) -> None:
    own.write_text(module)
    with pytest.raises(ConfigError, match=said):
        load_experiment(file(own.parent, name.format(own.stem)))


def test_a_node_takes_no_module(tmp_path: Path) -> None:
    from fednode.settings.read import load_settings

    with pytest.raises(ConfigError, match="'elsewhere:Mine', which is no policy"):
        load_settings(None, {}, ["policy={name: 'elsewhere:Mine'}"])
