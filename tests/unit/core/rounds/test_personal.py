"""The choice between merged and personal prompts, by value: no round is under way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fednode.core.rounds.averaging import Averaging
from fednode.core.rounds.method import MethodState, Round
from fednode.core.rounds.personal import Personal
from fednode.core.rounds.progress import Comparing, Measuring, TrainingOwn
from fednode.core.types import EMPTY, MEASURE, Report, Tensors
from fednode.policies.promptfl import PromptFLConfig
from tests.unit.core.rounds.staged import context

METHOD = Averaging(PromptFLConfig(), context("promptfl"))
GUARDED = Personal(METHOD, 0.1)


def prompts(value: float) -> Tensors:
    return Tensors({"context": np.full((1, 2), value)})


HELD, MERGED, USED, TUNED = map(prompts, (0.0, 4.0, 7.0, 1.0))
MOMENTUM = Tensors({"momentum/context": [[5.0, 5.0]]})  # of the prompts that are merged
NOW = Round(3, "prompts", MethodState(HELD, MOMENTUM), MethodState(MERGED, MOMENTUM))


def test_without_a_guard_the_merged_prompts_are_measured() -> None:
    work = Personal(METHOD, None).after_merge(NOW, USED, TUNED)
    assert isinstance(work, Measuring)
    assert (work.job.stage, work.job.tensors, work.job.measure) == (MEASURE, MERGED, True)


@pytest.mark.parametrize("used", [EMPTY, HELD], ids=["first round", "the merged prompts"])
def test_a_node_with_the_merged_prompts_compares_what_it_tuned_for_all(used: Tensors) -> None:
    work = GUARDED.after_merge(NOW, used, TUNED)
    assert isinstance(work, Comparing)
    assert (work.job.tensors, work.job.measure) == (MERGED, False)
    assert (work.merged, work.own, work.losses) == (MERGED, TUNED, ())


def test_a_node_with_prompts_of_its_own_trains_them_apart() -> None:
    """With the momentum of other prompts, the first steps would go where those came from."""
    work = GUARDED.after_merge(NOW, USED, TUNED)
    assert isinstance(work, TrainingOwn)
    assert (work.job.stage, work.job.tensors, work.job.carry) == ("prompts", USED, EMPTY)
    report = Report(tensors=prompts(8.0), metrics={}, samples=8)
    following, why = GUARDED.after_job(NOW, work, USED, report)
    assert isinstance(following, Comparing)
    assert (following.own, why) == (prompts(8.0), "")


def test_a_node_that_sat_the_round_out_compares_what_it_used() -> None:
    work = GUARDED.after_merge(NOW, USED, EMPTY)
    assert isinstance(work, Comparing)
    assert work.own == USED
    sat_out = GUARDED.after_merge(NOW, HELD, EMPTY)
    assert isinstance(sat_out, Measuring), "there is nothing to choose from"


def test_after_a_catch_up_a_node_keeps_its_personal_prompts_only() -> None:
    taken = MethodState(MERGED)
    assert GUARDED.kept(NOW, USED, taken) == USED
    assert GUARDED.kept(NOW, HELD, taken) == MERGED, "it used what was merged last"
    assert GUARDED.kept(NOW, EMPTY, taken) == MERGED
    assert Personal(METHOD, None).kept(NOW, USED, taken) == MERGED


def test_only_what_the_first_stage_tunes_may_serve_as_personal_prompts() -> None:
    report = Report(tensors=TUNED, metrics={}, samples=8)
    assert GUARDED.candidate(NOW, report) == TUNED
    assert GUARDED.candidate(replace(NOW, stage="aggregators"), report) == EMPTY
    assert Personal(METHOD, None).candidate(NOW, report) == EMPTY


@pytest.mark.parametrize(
    ("merged", "own", "used"),
    [(1.0, 1.0, MERGED), (1.1, 1.0, MERGED), (1.2, 1.0, TUNED), (2.0, float("nan"), MERGED)],
)
def test_the_rise_decides(merged: float, own: float, used: Tensors) -> None:
    first = GUARDED.after_merge(NOW, HELD, TUNED)
    assert isinstance(first, Comparing)
    report = Report(tensors=MERGED, metrics={"validation_loss": merged}, samples=8)
    second, why = GUARDED.after_job(NOW, first, HELD, report)
    assert isinstance(second, Comparing)
    assert (second.job.tensors, second.losses, why) == (TUNED, (merged,), "")
    last, why = GUARDED.after_job(
        NOW, second, HELD, replace(report, metrics={"validation_loss": own})
    )
    assert isinstance(last, Measuring)
    assert (last.job.tensors, last.job.measure) == (used, True)
    assert bool(why) == (used == TUNED)


@pytest.mark.parametrize("metrics", [{}, {"validation_loss": float("inf")}])
def test_where_nothing_can_be_measured_the_merged_prompts_are_used(
    metrics: dict[str, float],
) -> None:
    first = GUARDED.after_merge(NOW, HELD, TUNED)
    assert isinstance(first, Comparing)
    work, why = GUARDED.after_job(
        NOW, first, HELD, Report(tensors=MERGED, metrics=metrics, samples=8)
    )
    assert isinstance(work, Measuring)
    assert (work.job.tensors, why) == (MERGED, "")
