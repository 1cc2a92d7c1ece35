"""Shared by tests of the learner: the shipped model, features of a tiny one, and images."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from fednode.clip import model as clip
from fednode.clip.settings import ModelSettings
from fednode.data.base import DataSettings, NodeData
from fednode.data.load import load
from fednode.learn.features import Features

SMALL = DataSettings(
    classes=("accordion", "barrel", "beaver", "gerenuk"), halves=True, shots=4, validation=0.2
)


@pytest.fixture(scope="session")
def mini() -> clip.FrozenClip:
    return clip.load(ModelSettings(device="cpu"))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Return five files with differing pixels."""
    found = []
    for at in range(5):
        found.append(tmp_path / f"{at}.png")
        Image.linear_gradient("L").rotate(20 * at).convert("RGB").save(found[-1])
    return found


@pytest.fixture(scope="module")
def data() -> NodeData:
    """Return two of four classes of the built-in images, four images each."""
    return load(SMALL)


@pytest.fixture(scope="module")
def features(model: clip.FrozenClip) -> Features:
    return Features(model)
