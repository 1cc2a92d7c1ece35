"""Images and a tiny model for experiments, which tests of this folder share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fednode.lab.experiment import run
from tests.unit.clip import tiny
from tests.unit.lab.experiment.pictures import domains


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return domains(tmp_path_factory.mktemp("domains"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make open_clip know a tiny model, and a file of weights for it; return it for --set."""
    place = tmp_path_factory.mktemp("model")
    name = tiny.register(place, {"context_length": 77})
    weights = tiny.clip(1, context_length=77).state_dict()
    save_file(dict(weights), place / "weights.safetensors")
    return f"model={{name: {name}, pretrained: {place / 'weights.safetensors'}}}"


@pytest.fixture(autouse=True)
def _threads() -> Any:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    run._parts.cache_clear()
