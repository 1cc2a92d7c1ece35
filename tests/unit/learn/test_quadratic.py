"""The closed-form learner takes no time, unless it is asked to."""

from __future__ import annotations

import time

import numpy as np
import pytest

from fednode.core.rounds.statements import COMBINE, STATEMENT
from fednode.core.types import MEASURE, Job
from fednode.learn.quadratic import STEPS, QuadraticLearner, QuadraticSums


def job(learner: QuadraticLearner) -> Job:
    return Job(round=1, stage="tune", seed=1, tensors=learner.initial(1))


def test_each_step_takes_its_time_and_the_result_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    slow, quick = QuadraticLearner("a", step_s=0.5), QuadraticLearner("a")
    found = quick.tune(job(quick), lambda: False, lambda _: None)
    assert (found.steps, pauses) == (STEPS, [])
    assert slow.tune(job(slow), lambda: False, lambda _: None) == found
    assert pauses == [0.5] * STEPS


def test_class_sums_are_of_unit_features_and_name_a_common_and_an_own_class() -> None:
    learner = QuadraticSums("a", width=4, images=3)
    statement = Job(round=1, stage=STATEMENT, seed=1, tensors=learner.initial(1))
    found = learner.tune(statement, lambda: False, lambda _: None).tensors
    assert found.classes == learner.classes == ("common", "own of a")
    rows = found["rows"]
    assert rows.shape == (2, 5)
    assert (rows[:, 0] == 3).all()
    assert (np.linalg.norm(rows[:, 1:], axis=1) < 3).all()
    combine = Job(round=1, stage=COMBINE, seed=1, tensors=found)
    assert learner.tune(combine, lambda: False, lambda _: None).tensors == found
    measured = learner.tune(
        Job(round=1, stage=MEASURE, seed=1, tensors=found), lambda: False, lambda _: None
    )
    assert measured.metrics["own"] == pytest.approx(2 / 3)
