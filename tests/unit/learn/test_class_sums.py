"""Classifiers of one node's class sums, by the learner, on the built-in images."""

from __future__ import annotations

import numpy as np
import pytest

from fednode.clip import backbone
from fednode.core.types import Job, Report, Tensors
from fednode.data.base import NodeData
from fednode.learn import class_sums
from fednode.learn.class_sums import AloneObjective, HeadKind, rows_of, sums_of
from fednode.learn.features import Features
from fednode.learn.gaussian import Head, Prior, Sums
from fednode.learn.prompt_module import PromptModule
from fednode.learn.settings import TuningSettings
from fednode.learn.torch_learner import TorchLearner
from fednode.policies.local import LocalConfig
from fednode.policies.local import head as local
from fednode.testing.learners import ignore, never


def learner(
    head: HeadKind, mini: backbone.Backbone, data: NodeData, features: Features
) -> TorchLearner:
    objective: PromptModule = local(mini, TuningSettings(), LocalConfig(head))
    return TorchLearner(mini, objective, data, TuningSettings(), features)


def tuned(made: TorchLearner) -> Report:
    job = Job(round=1, stage="prompts", tensors=made.initial(1), seed=1)
    return made.tune(job, never, ignore)


def test_the_setting_chooses_the_objective(mini: backbone.Backbone) -> None:
    assert isinstance(local(mini, TuningSettings(), LocalConfig("gda")), AloneObjective)
    assert not local(mini, TuningSettings(), LocalConfig()).closed_form
    assert not local(mini, TuningSettings()).closed_form


@pytest.mark.parametrize("head", ["gda", "gda_zero_shot", "class_means"])
def test_a_job_gives_the_sums_of_the_images_and_their_classes(
    head: HeadKind, mini: backbone.Backbone, data: NodeData, features: Features
) -> None:
    made = learner(head, mini, data, features)
    found = tuned(made)
    assert found.tensors.classes == data.train.classes == made.classes
    x = features.of([image.path for image in data.train.images], never).features.numpy()
    y = np.array([image.label for image in data.train.images])
    rows = found.tensors["rows"]
    for at in range(len(data.train.classes)):
        assert rows[at, 0] == (y == at).sum()
        assert np.allclose(rows[at, 1:], x[y == at].sum(axis=0), atol=1e-5)
    assert np.allclose(found.tensors["moment"], x.T @ x, atol=1e-4)
    assert tuned(made).tensors == found.tensors
    assert found.metrics["own"] >= made.evaluate(Tensors(), never)["own"]
    # Other classes have no images: the hand-written prompt answers.
    assert found.metrics["new"] == made.evaluate(Tensors(), never)["new"]


def test_logits_are_those_of_the_head_and_of_the_prompt_at_the_chosen_ratio(
    mini: backbone.Backbone, data: NodeData, features: Features
) -> None:
    made = learner("gda", mini, data, features)
    found = tuned(made).tensors
    objective = AloneObjective("gda", mini, TuningSettings())
    x = features.of([image.path for image in data.train.images], never).features.double().numpy()
    y = np.array([image.label for image in data.train.images])
    classes = data.train.classes
    head = Head(Sums.of(x, y, classes), objective.template)
    ratio, heat = found["choice"]
    expected = (head.gauss(x, classes) + ratio * objective.prompt(x, classes)) / heat
    assert np.abs(np.exp(_log(expected))[range(len(y)), y] - _chances(made, found, data)).max() < (
        1e-4
    )


def _log(logits: np.ndarray) -> np.ndarray:
    peak = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(peak - np.log(np.exp(peak).sum(axis=1, keepdims=True)))


def _chances(made: TorchLearner, prompts: Tensors, data: NodeData) -> np.ndarray:
    logits, labels = made._logits(data.train, prompts, lambda: False)
    return logits.softmax(dim=1)[range(len(labels)), labels].numpy()


def test_rows_are_packed_and_read_back() -> None:
    draw = np.random.default_rng(1)
    made = Sums.of(draw.normal(size=(4, 3)), [0, 2, 2, 0], ["a", "b", "c"])
    found = sums_of(rows_of(made), made.classes, made.moment)
    assert found.classes == ("a", "c")
    assert np.array_equal(found.sums, made.sums)
    assert sums_of(np.zeros((2, 4)), ("a", "b")).classes == ()
    assert class_sums.PRIORS["gda_zero_shot"] == Prior(rho=None, kappa=0.0)
