"""The closed-form learner takes no time, unless it is asked to; then a job can be cancelled."""

from __future__ import annotations

import time

import numpy as np
import pytest

from fednode.core.rounds.statements import COMBINE, STATEMENT
from fednode.core.types import MEASURE, Job
from fednode.learn import quadratic
from fednode.learn.learner import Cancelled
from fednode.learn.quadratic import STEPS, QuadraticLearner, QuadraticSums

STEP_S = 0.5


class Clock:
    """A clock that moves only while somebody sleeps."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        patch.setattr(time, "monotonic", lambda: self.now)
        patch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def job(learner: QuadraticLearner) -> Job:
    return Job(round=1, stage="tune", seed=1, tensors=learner.initial(1))


def test_each_step_takes_its_time_and_the_result_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, slow = Clock(monkeypatch), QuadraticLearner("a", step_s=STEP_S)
    found = slow.tune(job(slow), lambda: False, lambda _: None)
    assert clock.now == pytest.approx(100.0 + STEPS * STEP_S)
    quick = QuadraticLearner("a")
    assert quick.tune(job(quick), lambda: False, lambda _: None) == found
    assert clock.now == pytest.approx(100.0 + STEPS * STEP_S)


def test_a_job_is_cancelled_in_the_middle_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, learner = Clock(monkeypatch), QuadraticLearner("a", step_s=STEP_S)
    with pytest.raises(Cancelled):
        learner.tune(job(learner), lambda: clock.now > 100.1, lambda _: None)
    assert clock.now < 100.1 + 2 * quadratic.LOOK_S


def test_by_default_the_learner_does_not_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    learner = QuadraticLearner("a")
    report = learner.tune(job(learner), lambda: False, lambda _: None)
    assert (report.steps, pauses) == (STEPS, [])


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
