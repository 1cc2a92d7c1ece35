"""The learner contract, for each learner."""

from __future__ import annotations

import pytest

from fednode.clip.settings import ModelSettings
from fednode.data.base import DataSettings
from fednode.learn.build import build
from fednode.learn.coop import CoOp
from fednode.learn.learner import Learner
from fednode.learn.quadratic import QuadraticLearner
from fednode.learn.settings import CacheSettings, TuningSettings
from fednode.testing.learners import LearnerContract

CLASSES = ("accordion", "barrel", "beaver")
MODEL = ModelSettings(device="cpu")
NO_CACHE = CacheSettings(size_mb=0)


class TestQuadratic(LearnerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def learner(cls) -> Learner:
        return QuadraticLearner("a")


class TestTorch(LearnerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def learner(cls) -> Learner:
        data = DataSettings(classes=CLASSES, shots=4, test=0.2)
        tuning = TuningSettings(batch_size=5, lr=0.005, threads=1)
        return build(MODEL, data, tuning, NO_CACHE, CoOp, None)
