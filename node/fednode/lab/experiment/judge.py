"""Test prompts on the images of a scene, each prompts and each test only once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fednode.clip import backbone
from fednode.core.types import EMPTY, Tensors
from fednode.data.base import NodeData, Split
from fednode.lab.experiment.classes import Results
from fednode.lab.experiment.scene import Scene
from fednode.learn.cache import FeatureCache
from fednode.learn.evaluation import Evaluation
from fednode.learn.features import Features
from fednode.learn.objective import Objective
from fednode.learn.settings import TuningSettings
from fednode.learn.torch_learner import TorchLearner

Scores = dict[str, dict[str, float]]
"""Accuracy (0..1) by test and node."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that all runs of one process have in common."""

    frozen: backbone.Backbone
    features: Features
    cache: FeatureCache | None = None


class Judge:
    """Test prompts, each only once: nodes that share a state have the same ones."""

    def __init__(
        self,
        parts: Parts,
        objective: Objective,
        tuning: TuningSettings,
        own: Mapping[str, Objective] | None = None,
    ) -> None:
        """Take what prompts mean. own: by node, if the nodes' data sets have texts of their own."""
        self._parts, self._objective, self._tuning = parts, objective, tuning
        self._own = own or {}
        self._learners: dict[Split, TorchLearner] = {}
        self._known: dict[tuple[Split, str], float] = {}
        self._results: dict[tuple[Split, str], Evaluation] = {}

    def scores(self, scene: Scene, prompts: Mapping[str, Tensors]) -> Scores:
        """Return the accuracy of each node's prompts in each of its tests; none is zero-shot."""
        return {
            test.name: {
                name: self._score(split, prompts.get(name, EMPTY), name)
                for name, split in test.images.items()
            }
            for test in scene.tests
        }

    def results(self, scene: Scene, prompts: Mapping[str, Tensors]) -> Results:
        """Return the results by class of each node's prompts in its tests that have images."""
        results: Results = {}
        for test in scene.tests:
            for name, split in test.images.items():
                if split.images:
                    results.setdefault(test.name, {})[name] = self._result(
                        split, prompts.get(name, EMPTY), name
                    )
        return results

    def _score(self, split: Split, prompts: Tensors, name: str) -> float:
        key = (split, prompts.digest)
        if key not in self._known:
            figures = self._learner(split, name).evaluate(prompts, lambda: False)
            self._known[key] = figures.get("own", float("nan"))
        return self._known[key]

    def _result(self, split: Split, prompts: Tensors, name: str) -> Evaluation:
        key = (split, prompts.digest)
        if key not in self._results:
            self._results[key] = self._learner(split, name).results(prompts)["own"]
            self._known[key] = self._results[key].accuracy
        return self._results[key]

    def _learner(self, split: Split, name: str) -> TorchLearner:
        if split not in self._learners:
            nothing = Split(split.classes, ())
            self._learners[split] = TorchLearner(
                self._parts.frozen,
                self._own.get(name, self._objective),
                NodeData(train=nothing, validation=nothing, own=split),
                self._tuning,
                self._parts.features,
            )
        return self._learners[split]
