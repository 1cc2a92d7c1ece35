"""A learner is built from settings."""

from __future__ import annotations

from pathlib import Path

from fednode.clip.settings import ModelSettings
from fednode.core.types import Tensors
from fednode.learn.build import build
from fednode.learn.coop import CoOp
from fednode.learn.settings import CacheSettings, TuningSettings
from fednode.testing.learners import never
from tests.unit.learn.conftest import SMALL


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
