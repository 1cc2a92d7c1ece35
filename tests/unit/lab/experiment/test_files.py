"""An experiment's file: its faults, --smoke, and methods that a grid turns into rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fednode.errors import ConfigError
from fednode.lab.experiment.files import load_experiment
from tests.unit.lab.experiment.test_experiment import write


def test_one_fault_of_a_method_is_not_followed_by_others(tmp_path: Path, folder: Path) -> None:
    methods = [{"label": "x", "polcy": {"name": "local"}}, "promptfl"]
    with pytest.raises(ConfigError) as fault:
        load_experiment(write(tmp_path / "t.yaml", folder, methods=methods))
    assert len(str(fault.value).splitlines()) == 1
    assert "unknown key 'polcy' in entry 1 of 'methods'; did you mean 'policy'?" in str(fault.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"metods": []}, "unknown key 'metods'; did you mean 'methods'?"),
        ({"methods": []}, "methods is empty"),
        ({"methods": ["zerodlf"]}, "did you mean 'zerodfl'"),
        ({"methods": ["local", "local"]}, "methods names 'local' twice"),
        ({"methods": [{"label": "x", "policy": {"name": "zerodfl", "recipient": 1}}]}, "recipient"),
        ({"methods": [{"label": "x", "policy": "local", "tuning": {"lr": 0}}]}, "tuning.lr is 0"),
        (
            {"methods": [{"label": "x", "policy": {"name": "zerodfl", "admit_rise": 0}}]},
            "method 'x': policy.admit_rise judges by validation images, and data.validation is 0",
        ),
        (
            {"methods": [{"label": "x", "policy": "promptfl", "guard": {"merged_rise": 0}}]},
            "method 'x': guard.merged_rise judges by validation images, and data.validation is 0",
        ),
        (
            {"methods": [{"label": "x", "policy": "promptfl", "guard": {"merged_rice": 0}}]},
            "method 'x'.*unknown key 'guard.merged_rice'",
        ),
        ({"protocol": {"kind": "in-domains"}}, "protocol.kind is 'in-domains'"),
        ({"protocol": {"clients": 0}}, "protocol.clients is 0"),
        ({"protocol": {"classes_per_client": 0}}, "protocol.classes_per_client is 0"),
        ({"against": ["nobody"]}, "against names 'nobody'"),
        ({"rounds": 0}, "rounds is 0; it must be at least 1"),
        ({"curve_every": -1}, "curve_every is -1"),
        ({"seeds": []}, "seeds is empty; give one at least"),
        ({"seeds": [1, 1]}, "seeds names '1' twice"),
        ({"methods": [{"label": "x", "policy": "local", "liars": -1}]}, "liars is -1"),
        ({"methods": [{"label": "x", "policy": "local", "lie": "y"}]}, "lie is 'y'; there are "),
        ({"data": {"path": "x", "shots": -1}}, "data.shots is -1; it must be at least 0"),
        ({"data": {"path": "x", "test": 1.0}}, "data.test is 1; it must be from 0 to 0.99"),
        ({"data": {"path": "x", "test_images": -1}}, "data.test_images is -1"),
        ({"data": {"path": "x", "domains": []}}, "data.domains is empty; give one"),
        ({"data": {"path": "x", "classes": ["a", "a"]}}, "data.classes names 'a' twice"),
        (
            {"data": {"path": "x", "domains": ["a"]}, "protocol": {"kind": "base-to-new"}},
            "data.domains is set, and protocol.kind base-to-new has no domains",
        ),
    ],
)
def test_faults_of_a_file_are_sentences(
    tmp_path: Path, folder: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_experiment(write(tmp_path / "t.yaml", folder, **changed))


def test_smoke_needs_its_section(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ConfigError, match="has no section `smoke`"):
        load_experiment(write(tmp_path / "t.yaml", folder), smoke=True)


def test_a_flag_names_a_model_as_shortly_as_a_file(tmp_path: Path, folder: Path) -> None:
    file = write(tmp_path / "t.yaml", folder)
    for flags in (["model=ViT-B-32"], ["model={name: RN50}", "model=ViT-B-32"]):
        assert load_experiment(file, flags=flags).model.name == "ViT-B-32"
    found = load_experiment(file, flags=["model={name: ViT-B-32, device: cpu}"])
    assert (found.model.name, found.model.device) == ("ViT-B-32", "cpu")
