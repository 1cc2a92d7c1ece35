"""Jobs beyond plain tuning: measuring, private arrays, what moved, what is carried; predictors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fednode.clip.model import FrozenClip
from fednode.core.types import MEASURE, PRIVATE, Tensors
from fednode.learn.build import predictor
from fednode.policies.diprompt import AVERAGE, QUERY
from fednode.policies.feddpt import MOVED
from fednode.testing.learners import never
from tests.unit.learn.nodes import CLASSES, job_of, learner_of, tuned

OWN = ("text.x", "visual.x", "visual.y")


def test_measuring_trains_nothing(model: FrozenClip, files: list[Path]) -> None:
    one = learner_of(model, files, "feddpt")
    everything = one.initial(1)
    for number, more in ((2, set[str]()), (30, {"own", "zero_shot_own"})):
        report = tuned(one, job_of(one, number, stage=MEASURE, rounds=30))
        assert (report.tensors, report.steps, report.changed) == (everything, 0, ())
        assert set(report.metrics) == {"validation", "validation_loss", *more}


def test_what_moved_and_what_is_carried(model: FrozenClip, files: list[Path]) -> None:
    """Private prompts and averages go round; the optimizer's state is of all that is trained."""
    one = learner_of(model, files, "diprompt", optimizer="adam", lr=0.01)
    first = tuned(one)
    assert set(first.tensors) == {"global", "domain.x", "domain.y"}
    assert set(first.changed) == {
        name for name, array in first.tensors.items() if (array != one.initial(1)[name]).any()
    }
    assert {PRIVATE + QUERY, AVERAGE, f"{QUERY}/exp_avg", "global/step"} <= set(first.carry)
    second = tuned(one, job_of(one, 2, carry=first.carry))
    # It goes on: a job without the carry asks with the query's first words.
    fresh = tuned(one, job_of(one, 2))
    assert second.carry[PRIVATE + QUERY].tolist() != fresh.carry[PRIVATE + QUERY].tolist()
    assert float(second.carry["global/step"]) == 2 * float(first.carry["global/step"])


def test_averages_of_others_prompts_go_on(model: FrozenClip, files: list[Path]) -> None:
    one = learner_of(model, files, "feddpt")
    moved = one.initial(2)["text.y"]
    carry = Tensors({MOVED + "text.y": moved})
    report = tuned(one, job_of(one, 3, own=OWN, carry=carry, measure=False))
    assert set(report.metrics) == {"loss"}, "it is measured later"
    received = np.asarray(one.initial(1)["text.y"], dtype=np.float64)
    wanted = received + 0.99**report.steps * (moved - received)
    assert np.allclose(report.carry[MOVED + "text.y"], wanted, atol=1e-6)


def test_a_job_that_measures_uses_the_private_prompt(model: FrozenClip, files: list[Path]) -> None:
    one = learner_of(model, files, "fedotp")
    report = tuned(one, job_of(one, 3))
    both = Tensors({**report.tensors, "local": report.carry[PRIVATE + "local"]})
    found, alone = (
        tuned(one, job_of(one, 3, stage=MEASURE, tensors=tensors)).metrics["validation_loss"]
        for tensors in (both, report.tensors)
    )
    assert report.metrics["validation_loss"] == found != alone


@pytest.mark.parametrize("policy", ["zerodfl", "feddpt", "fedotp"])
def test_a_predictor_gives_the_probabilities_of_the_learner_s_classifier(
    model: FrozenClip, files: list[Path], policy: str
) -> None:
    """Of policies that look at features, tokens and patches."""
    one = learner_of(model, files, policy)
    prompts = Tensors({**one.initial(3), **one.module.private(2)})
    found = predictor(one.module)(prompts, files, CLASSES)
    assert np.allclose(found.sum(axis=1), 1.0, atol=1e-6)
    results = one.results(prompts)["own"]
    assert np.array_equal(found, results.shares)
    assert one.evaluate(prompts, never)["own"] == pytest.approx(results.accuracy)
