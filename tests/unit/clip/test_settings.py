"""Settings of the model: which devices there are, and the model's name for people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fednode.clip.settings import ASSETS, MINI, ModelSettings


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:one", "cpu ", "CPU"])
def test_other_devices_are_a_sentence(device: str) -> None:
    with pytest.raises(ValueError, match=f"model.device is '{device}'; it must be auto, cpu or"):
        ModelSettings(device=device)
    assert all(ModelSettings(device=known) for known in ("auto", "cpu", "cuda", "cuda:1"))


def test_the_embedded_model_is_named_with_its_version_and_others_as_they_are() -> None:
    version = json.loads((ASSETS / "config.json").read_text())["version"]
    assert ModelSettings().title == f"{MINI}, version {version}"
    assert ModelSettings(name="ViT-B-16").title == "ViT-B-16"
    assert ModelSettings(name="local-dir:/home/jane/biomed").title == "local-dir:biomed"


def test_only_the_path_of_a_folder_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/jane")
    placed = {name: ModelSettings(name=name).placed().name for name in (
        "local-dir:biomed", "local-dir:~/biomed", "local-dir:", "hf-hub:a/b", MINI
    )}  # fmt: skip
    assert [*placed.values()] == [
        *(f"local-dir:{tmp_path}/biomed", "local-dir:/home/jane/biomed", "local-dir:"),
        *("hf-hub:a/b", MINI),
    ]
