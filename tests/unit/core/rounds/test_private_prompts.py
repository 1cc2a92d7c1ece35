"""Prompts that stay with their node (FedOTP, FedPGP): never sent, used with the merged ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fednode.core.events import Effect, RoundDue, Send, Tuned
from fednode.core.rounds.engine import Rounds
from fednode.core.settings import GuardSettings
from fednode.core.types import PRIVATE, Report, Tensors
from fednode.policies.fedotp import FedOTPConfig
from tests.unit.core.rounds.staged import context, job, up
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


@pytest.mark.parametrize("name", ["local", "private/local"])
def test_a_peer_cannot_send_a_local_prompt(name: str) -> None:
    policy = begun()
    effects = trained(policy, policy.handle(0.0, RoundDue(1)), 1.0, 50.0)
    like = next(one.message for one in effects if isinstance(one, Send))
    wrong = replace(like, sender="b", tensors=Tensors({"global": array(1.0), name: array(2.0)}))
    assert f"{name} is [1, 2]" in policy.fault(wrong)
    assert policy.fault(replace(wrong, tensors=Tensors({"global": array(1.0)}))) == ""
