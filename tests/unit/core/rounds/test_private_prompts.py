"""Prompts that stay with their node (FedOTP, FedPGP): never sent, used with the merged ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fednode.core.events import Adopt, Adopted, Effect, RoundDue, Send, Tune, Tuned
from fednode.core.rounds.engine import Rounds
from fednode.core.settings import GuardSettings
from fednode.core.types import MEASURE, PRIVATE, Report, Tensors
from fednode.policies.fedotp import FedOTPConfig
from tests.unit.core.rounds.staged import context, heard, job, tried, up
from tests.unit.policies.methods import FEDOTP

KIND = FEDOTP
START = Tensors({"global": np.zeros((1, 2))})


def array(value: float) -> Any:
    return np.full((1, 2), value, dtype=np.float32)


def begun(rise: float | None = None, **config: Any) -> Rounds:
    frame = replace(context("fedotp"), guard=GuardSettings(merged_rise=rise))
    return up(KIND.start(FedOTPConfig(weights="equal", **config), frame, START))


def trained(policy: Rounds, effects: Sequence[Effect], shared: float, own: float) -> list[Effect]:
    """End a job: what it trained, and what the learner carries on."""
    tune = job(effects)
    assert set(tune.job.tensors) == {"global"}
    carry = {PRIVATE + "local": array(own), "local/momentum_buffer": array(7.0)}
    report = Report(
        tensors=Tensors({"global": array(shared)}),
        metrics={"loss": 1.0},
        samples=8,
        carry=Tensors(carry),
    )
    return list(policy.handle(0.0, Tuned(tune.job, report)))


def adopted(policy: Rounds, effects: Sequence[Effect]) -> Adopt:
    tune = job(effects)
    assert tune.job.stage == MEASURE
    report = Report(tensors=tune.job.tensors, metrics={}, samples=8)
    (adopt,) = policy.handle(0.0, Tuned(tune.job, report))
    assert isinstance(adopt, Adopt)
    policy.handle(0.0, Adopted(adopt.snapshot))
    return adopt


def both(shared: float, own: float) -> Tensors:
    return Tensors({"global": array(shared), "local": array(own)})


def peers(b: float, c: float) -> dict[str, Tensors]:
    return {"b": Tensors({"global": array(b)}), "c": Tensors({"global": array(c)})}


def test_the_global_prompt_alone_is_sent_and_both_are_used() -> None:
    policy = begun()
    effects = trained(policy, policy.handle(0.0, RoundDue(1)), 1.0, 50.0)
    sent = [one.message for one in effects if isinstance(one, Send)]
    assert sent
    assert all(set(one.tensors) == {"global"} for one in sent)
    state = adopted(policy, heard(policy, effects, peers(3.0, 8.0))).snapshot.policy
    assert state.tuned == both(4.0, 50.0)
    assert state.tensors == Tensors({"global": array(4.0)})
    (tune,) = policy.handle(0.0, RoundDue(2))
    assert isinstance(tune, Tune)
    assert tune.job.tensors == state.tensors
    assert tune.job.carry == Tensors({PRIVATE + "local": array(50.0)}), "momentum is dropped"


def test_momentum_stays_where_that_is_asked() -> None:
    policy = begun(optimizer="keep")
    effects = trained(policy, policy.handle(0.0, RoundDue(1)), 1.0, 50.0)
    carry = adopted(policy, heard(policy, effects, peers(3.0, 8.0))).snapshot.policy.carry
    assert set(carry) == {PRIVATE + "local", "local/momentum_buffer"}


@pytest.mark.parametrize("name", ["local", "private/local"])
def test_a_peer_cannot_send_a_local_prompt(name: str) -> None:
    policy = begun()
    effects = trained(policy, policy.handle(0.0, RoundDue(1)), 1.0, 50.0)
    like = next(one.message for one in effects if isinstance(one, Send))
    wrong = replace(like, sender="b", tensors=Tensors({"global": array(1.0), name: array(2.0)}))
    assert f"{name} is [1, 2]" in policy.fault(wrong)
    assert policy.fault(replace(wrong, tensors=Tensors({"global": array(1.0)}))) == ""


def test_a_restarted_node_goes_on_with_its_own_prompt() -> None:
    policy = begun()
    effects = trained(policy, policy.handle(0.0, RoundDue(1)), 1.0, 50.0)
    state = adopted(policy, heard(policy, effects, peers(3.0, 8.0))).snapshot.policy
    again = up(KIND.restore(FedOTPConfig(weights="equal"), context("fedotp"), state))
    (tune,) = again.handle(0.0, RoundDue(2))
    assert isinstance(tune, Tune)
    assert tune.job.carry[PRIVATE + "local"].tolist() == array(50.0).tolist()
    assert again.state().tuned == both(4.0, 50.0)


def test_the_guard_compares_both_prompts_and_trains_its_own_line_apart() -> None:
    policy = begun(rise=0.1)
    effects = trained(policy, policy.handle(0.0, RoundDue(1)), 1.0, 50.0)
    asked, effects = tried(policy, heard(policy, effects, peers(3.0, 8.0)), [9.0, 1.0])
    assert asked == [both(4.0, 50.0), both(1.0, 50.0)]
    state = adopted(policy, effects).snapshot.policy
    assert (state.tensors, state.tuned) == (Tensors({"global": array(4.0)}), both(1.0, 50.0))
    effects = trained(policy, policy.handle(0.0, RoundDue(2)), 5.0, 60.0)
    effects = heard(policy, effects, peers(5.0, 5.0))
    own = job(effects).job
    assert own.tensors == Tensors({"global": array(1.0)})
    assert own.carry == Tensors({PRIVATE + "local": array(50.0)})
    asked, effects = tried(policy, trained(policy, effects, 2.0, 51.0), [1.0, 9.0])
    assert asked == [both(5.0, 60.0), both(2.0, 51.0)]
    state = adopted(policy, effects).snapshot.policy
    assert state.tuned == both(5.0, 60.0)
    assert state.carry == Tensors({PRIVATE + "local": array(60.0)})
