"""The choice between merged and personal prompts, by value: no round is under way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fednode.core.rounds.averaging import Averaging
from fednode.core.rounds.method import MethodState, Round
from fednode.core.rounds.personal import Choice, Personal
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


def report(**metrics: float) -> Report:
    return Report(tensors=prompts(8.0), metrics=metrics, samples=8)


def ended(choice: Choice, given: Report | None = None) -> tuple[Tensors, str]:
    """Return what is chosen after the last job's report."""
    with pytest.raises(StopIteration) as end:
        choice.send(given) if given else next(choice)
    chosen: tuple[Tensors, str] = end.value.value
    return chosen


def test_without_a_guard_the_merged_prompts_are_used() -> None:
    assert ended(Personal(METHOD, None).choose(NOW, USED, TUNED)) == (MERGED, "")


@pytest.mark.parametrize("used", [EMPTY, HELD], ids=["first round", "the merged prompts"])
def test_a_node_with_the_merged_prompts_compares_what_it_tuned_for_all(used: Tensors) -> None:
    choice = GUARDED.choose(NOW, used, TUNED)
    merged = next(choice)
    assert (merged.stage, merged.tensors, merged.measure) == (MEASURE, MERGED, False)
    assert choice.send(report(validation_loss=1.0)).tensors == TUNED


def test_a_node_with_prompts_of_its_own_trains_them_apart() -> None:
    """With the momentum of other prompts, the first steps would go where those came from."""
    choice = GUARDED.choose(NOW, USED, TUNED)
    job = next(choice)
    assert (job.stage, job.tensors, job.carry) == ("prompts", USED, EMPTY)
    assert choice.send(report()).tensors == MERGED
    assert choice.send(report(validation_loss=1.0)).tensors == prompts(8.0)


def test_a_node_that_sat_the_round_out_compares_what_it_used() -> None:
    choice = GUARDED.choose(NOW, USED, EMPTY)
    assert next(choice).tensors == MERGED
    assert choice.send(report(validation_loss=1.0)).tensors == USED
    assert ended(GUARDED.choose(NOW, HELD, EMPTY)) == (MERGED, ""), "nothing to choose from"


def test_after_a_catch_up_a_node_keeps_its_personal_prompts_only() -> None:
    taken = MethodState(MERGED)
    assert GUARDED.kept(NOW, USED, taken) == USED
    assert GUARDED.kept(NOW, HELD, taken) == MERGED, "it used what was merged last"
    assert GUARDED.kept(NOW, EMPTY, taken) == MERGED
    assert Personal(METHOD, None).kept(NOW, USED, taken) == MERGED


def test_only_what_the_first_stage_tunes_may_serve_as_personal_prompts() -> None:
    given = Report(tensors=TUNED, metrics={}, samples=8)
    assert GUARDED.candidate(NOW, given) == TUNED
    assert GUARDED.candidate(replace(NOW, stage="aggregators"), given) == EMPTY
    assert Personal(METHOD, None).candidate(NOW, given) == EMPTY


@pytest.mark.parametrize(
    ("merged", "own", "used"),
    [(1.0, 1.0, MERGED), (1.1, 1.0, MERGED), (1.2, 1.0, TUNED), (2.0, float("nan"), MERGED)],
)
def test_the_rise_decides(merged: float, own: float, used: Tensors) -> None:
    choice = GUARDED.choose(NOW, HELD, TUNED)
    next(choice)
    choice.send(report(validation_loss=merged))
    chosen, why = ended(choice, report(validation_loss=own))
    assert (chosen, bool(why)) == (used, used == TUNED)


@pytest.mark.parametrize("metrics", [{}, {"validation_loss": float("inf")}])
def test_where_nothing_can_be_measured_the_merged_prompts_are_used(
    metrics: dict[str, float],
) -> None:
    choice = GUARDED.choose(NOW, HELD, TUNED)
    next(choice)
    assert ended(choice, report(**metrics)) == (MERGED, "")
