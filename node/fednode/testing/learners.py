"""What every learner promises (node/fednode/learn/learner.py), as tests to inherit."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fednode.clip.settings import ModelSettings
from fednode.core.policy import PolicyMethod
from fednode.core.types import EMPTY, Job, Progress, Tensors
from fednode.data.base import DataSettings
from fednode.learn.learner import Cancelled, Learner
from fednode.learn.settings import CacheSettings, TuningSettings


def never() -> bool:
    """Return False: a job is never cancelled."""
    return False


def ignore(_: Progress) -> None:
    """Take progress and do nothing."""


def job(learner: Learner, number: int = 1, rounds: int = 3) -> Job:
    """Return a job that trains a learner's initial prompts."""
    return Job(
        round=number, stage="prompts", tensors=learner.initial(1), seed=11 * number, rounds=rounds
    )


def small_learner(method: type[PolicyMethod], config: Any = None, **tuning: Any) -> Learner:
    """Return a learner that tunes a method's arrays on twelve built-in images of three classes.

    The model is the embedded one, on the CPU. config: the method's settings; None: its defaults.
    tuning: settings of node.yaml's section `tuning`.
    """
    from fednode.learn.build import build

    data = DataSettings(classes=("accordion", "barrel", "beaver"), shots=4, test=0.2)
    settings = TuningSettings(**{"batch_size": 5, "lr": 0.005, "threads": 1, **tuning})
    model, cache = ModelSettings(device="cpu"), CacheSettings(size_mb=0)
    own = method.config_type() if config is None else config
    prompts: Any = method.prompts
    return build(model, data, settings, cache, prompts, own)


class LearnerContract:
    """Inherit and give a fixture `learner`."""

    def test_facts_about_itself_hold_still(self, learner: Learner) -> None:
        assert learner.schema == learner.schema
        assert learner.backbone == learner.backbone
        assert learner.classes
        assert learner.samples > 0
        assert all(isinstance(note, str) for note in learner.notes)

    def test_equal_seeds_start_equal(self, learner: Learner) -> None:
        assert learner.initial(1) == learner.initial(1)
        assert learner.initial(1).finite()

    def test_a_report_has_the_shapes_of_its_job(self, learner: Learner) -> None:
        given = job(learner)
        report = learner.tune(given, never, ignore)
        assert report.tensors.shapes == given.tensors.shapes
        assert report.tensors != given.tensors
        assert report.samples == learner.samples
        assert report.steps > 0
        assert math.isfinite(report.metrics["loss"])

    def test_equal_jobs_give_equal_bits(self, learner: Learner) -> None:
        first, second = (learner.tune(job(learner), never, ignore) for _ in range(2))
        assert first.tensors.digest == second.tensors.digest
        assert first.carry.digest == second.carry.digest
        assert first.metrics == second.metrics

    def test_tuning_lowers_the_loss(self, learner: Learner) -> None:
        tensors, carry = learner.initial(1), EMPTY
        losses = []
        for number in range(1, 6):
            given = Job(
                round=number, stage="prompts", tensors=tensors, seed=number, carry=carry, rounds=0
            )
            report = learner.tune(given, never, ignore)
            tensors, carry = report.tensors, report.carry
            losses.append(report.metrics["loss"])
        assert losses[-1] < losses[0]

    def test_progress_is_told_to_the_end(self, learner: Learner) -> None:
        told: list[Progress] = []
        report = learner.tune(job(learner), never, told.append)
        assert [step.step for step in told] == list(range(1, report.steps + 1))
        assert {step.steps for step in told} == {report.steps}

    def test_cancelling_stops_before_the_next_step(self, learner: Learner) -> None:
        with pytest.raises(Cancelled):
            learner.tune(job(learner), lambda: True, ignore)

    def test_evaluation_gives_shares(self, learner: Learner) -> None:
        for tensors in (learner.initial(1), Tensors()):
            metrics = learner.evaluate(tensors, never)
            assert "own" in metrics
            assert all(0.0 <= share <= 1.0 for share in metrics.values())

    def test_the_last_round_is_evaluated(self, learner: Learner) -> None:
        assert "own" in learner.tune(job(learner, 3, rounds=3), never, ignore).metrics
