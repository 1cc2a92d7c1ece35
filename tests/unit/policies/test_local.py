"""The control: it exchanges nothing, and tunes the one prompt that PromptFL tunes, or nothing."""

from __future__ import annotations

from typing import Any

from fednode import registry
from fednode.core.events import PeerUp, Received, RoundDue, Tune
from fednode.core.settings import RoundSettings
from fednode.core.types import Message
from fednode.learn.coop import CoOp
from fednode.learn.settings import TuningSettings
from fednode.policies.local import Local, LocalConfig, OwnGaussian
from fednode.policies.local import head as Objective
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from fednode.testing import frame
from tests.unit.policies.scenes import OWN

CONTEXT = frame("local", peers=("b",), rounds=RoundSettings(mode="async", max=3))


def test_its_first_job_is_zerodfl_s_to_the_letter() -> None:
    """The same start, seed and schedule: only the exchange can make a difference."""
    jobs = []
    for policy in (
        Local.start(LocalConfig(), CONTEXT, OWN),
        ZeroDFL.start(ZeroDFLConfig(), CONTEXT, OWN),
    ):
        (tune,) = policy.handle(0.0, RoundDue(1))
        assert isinstance(tune, Tune)
        jobs.append(tune.job)
    assert jobs[0] == jobs[1]


def test_it_takes_no_notice_of_peers_and_refuses_their_messages() -> None:
    policy = Local.start(LocalConfig(), CONTEXT, OWN)
    message = Message(
        mesh="m", fingerprint="f", policy="local", sender="b", round=1, phase="prompts", tensors=OWN
    )
    assert "exchanges nothing" in policy.fault(message)
    before = policy.state()
    assert policy.handle(0.0, PeerUp("b")) == []
    assert policy.handle(0.0, Received(message)) == []
    assert policy.state() == before


def test_the_setting_chooses_what_a_node_classifies_with(model: Any) -> None:
    assert registry.prompt_module("local") is Objective
    for config in (None, LocalConfig(), LocalConfig("prompt")):
        assert type(Objective(model, TuningSettings(), config)) is CoOp
    assert type(Objective(model, TuningSettings(), LocalConfig("gda"))) is OwnGaussian
