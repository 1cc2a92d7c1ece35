"""What models take, from shapes alone and of loaded models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fednode.clip import model as clip
from fednode.clip.settings import ModelSettings
from tests.unit.clip import folders

EXPECTED: dict[str, dict[str, Any]] = {
    "ViT-S-32": {
        "text": "",
        **dict.fromkeys(("deep", "visual", "has_class_token", "patches"), True),
    },
    "RN50": {"text": "", "visual": False, "patches": False, "features": 1024},
    "ViTamin-S": {"visual": True, "has_class_token": False, "features": 384},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_architecture_is_judged_without_weights(name: str) -> None:
    found = clip.describe(name)
    assert found["parameters"] > 1e7
    for key, value in EXPECTED[name].items():
        assert found[key] == value, key


def test_a_loaded_model_is_judged_by_itself(tmp_path: Path) -> None:
    name = f"local-dir:{folders.biomedical(tmp_path)}"
    frozen = clip.load(ModelSettings(name=name, device="cpu"))
    found = clip.describe(name, frozen)
    expected = {"text": "", "deep": True, "visual": True, "patches": True, "features": 32}
    assert expected.items() <= found.items()
    assert found["reads"] == 48
