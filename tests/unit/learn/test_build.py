"""A learner and a predictor are built from settings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fednode.clip.model import FrozenClip
from fednode.clip.settings import ModelSettings
from fednode.core.types import Tensors
from fednode.data.base import NodeData
from fednode.learn.build import build, predictor
from fednode.learn.coop import CoOp
from fednode.learn.features import Features
from fednode.learn.settings import CacheSettings, TuningSettings
from tests.unit.learn.conftest import SMALL
from tests.unit.learn.test_torch_learner import learner, never


def test_a_predictor_gives_probabilities_as_the_learner_would(
    mini: FrozenClip, data: NodeData, features: Features
) -> None:
    module = CoOp(mini, TuningSettings())
    predict, prompts = predictor(module), module.initial(4)
    paths = [image.path for image in data.own.images]
    found = predict(prompts, paths, data.own.classes)
    assert found.shape == (len(paths), 2)
    assert np.allclose(found.sum(axis=1), 1.0, atol=1e-6)
    labels = np.array([image.label for image in data.own.images])
    accuracy = learner(mini, data, features).evaluate(prompts, never)["own"]
    assert (found.argmax(axis=1) == labels).mean() == pytest.approx(accuracy)


def test_a_learner_is_built_from_settings_and_keeps_its_features(tmp_path: Path) -> None:
    tuning = TuningSettings(threads=1)
    cache = CacheSettings(folder=str(tmp_path))
    one = build(ModelSettings(device="cpu"), SMALL, tuning, cache, CoOp, None)
    assert one.classes == ("accordion", "barrel")
    assert one.samples == 8
    one.evaluate(Tensors(), never)
    assert (tmp_path / "features.db").exists()
    off = CacheSettings(folder=str(tmp_path / "none"), size_mb=0)
    build(ModelSettings(device="cpu"), SMALL, tuning, off, CoOp, None)
    assert not (tmp_path / "none").exists()
