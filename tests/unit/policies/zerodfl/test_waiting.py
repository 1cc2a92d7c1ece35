"""What a ZeroDFL node waits for, step by step, in both modes."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from fednode.core import events as ev
from fednode.core.policy import Activity
from fednode.core.rounds.progress import Idle, Training
from fednode.core.types import Report
from fednode.policies.zerodfl.exchange import ZeroDFL
from fednode.policies.zerodfl.waiting import Adopting, Exchanging, Judging, Waiting
from tests.unit.policies.scenes import OWN, node, said

METRICS = {"validation_loss": 1.0}


def waiting(policy: ZeroDFL) -> Waiting:
    return policy._waiting


def trained(policy: ZeroDFL) -> list[ev.Effect]:
    """End the tuning under way."""
    training = waiting(policy)
    assert isinstance(training, Training)
    report = Report(tensors=OWN, metrics=METRICS, samples=8)
    return list(policy.handle(0.0, ev.Tuned(training.job, report)))


def judged(policy: ZeroDFL) -> list[ev.Effect]:
    """End the trials under way; every row stays."""
    effects: list[ev.Effect] = []
    while isinstance(judging := waiting(policy), Judging):
        job = judging.job
        report = Report(tensors=job.tensors, metrics=METRICS, samples=8)
        effects += policy.handle(0.0, ev.Tuned(job, report))
    return effects


def test_a_round_in_sync_waits_for_tuning_peers_trials_and_the_commit() -> None:
    policy = node(peers=("b",), mode="sync", admit_rise=0.5)
    assert waiting(policy) == Idle()
    policy.handle(0.0, ev.RoundDue(1))
    trained(policy)
    assert waiting(policy) == Exchanging(METRICS)
    policy.handle(0.0, said("b"))
    judging = waiting(policy)
    assert isinstance(judging, Judging)
    assert judging.metrics == METRICS
    (adopt,) = (one for one in judged(policy) if isinstance(one, ev.Adopt))
    assert waiting(policy) == Adopting()
    assert adopt.snapshot.metrics == METRICS
    policy.handle(0.0, ev.Adopted(adopt.snapshot))
    assert waiting(policy) == Idle()


def test_a_round_in_async_judges_before_it_tunes_and_waits_for_no_peer() -> None:
    policy = node(peers=("b",), admit_rise=0.5)
    policy.handle(0.0, said("b"))
    policy.handle(0.0, ev.RoundDue(1))
    judging = waiting(policy)
    assert isinstance(judging, Judging)
    assert judging.metrics == {}
    judged(policy)
    trained(policy)
    assert waiting(policy) == Adopting()


@pytest.mark.parametrize("gate", [None, 0.5])
def test_after_a_job_that_failed_the_round_may_begin_again(gate: float | None) -> None:
    """The job is the tuning, or with a gate the trial of the first row."""
    policy = node(peers=("b",), admit_rise=gate)
    policy.handle(0.0, said("b"))
    policy.handle(0.0, ev.RoundDue(1))
    begun = waiting(policy)
    assert isinstance(begun, Training if gate is None else Judging)
    policy.handle(0.0, ev.TuneFailed(begun.job, "no memory"))
    assert waiting(policy) == Idle()


def test_each_state_says_what_the_node_does_and_does_not_change() -> None:
    assert [one.phase for one in (Idle, Training, Exchanging, Judging, Adopting)] == [
        Activity.IDLE,
        Activity.TUNING,
        Activity.EXCHANGING,
        Activity.TUNING,
        Activity.ADOPTING,
    ]
    with pytest.raises(FrozenInstanceError):
        Exchanging(METRICS).metrics = {}  # type: ignore[misc]
