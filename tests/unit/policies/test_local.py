"""The control: it exchanges nothing, and tunes the one prompt that PromptFL tunes, or nothing."""

from __future__ import annotations

from typing import Any

from fednode import registry
from fednode.core.events import PeerUp, Received, RoundDue
from fednode.core.settings import RoundSettings
from fednode.core.types import Message, Tensors
from fednode.learn.coop import CoOp
from fednode.learn.settings import TuningSettings
from fednode.policies.local import Local, LocalConfig, OwnGaussian
from fednode.policies.local import head as Objective
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from fednode.testing import frame

CONTEXT = frame("local", peers=("b",), rounds=RoundSettings(mode="async", max=3))
OWN = Tensors({"context": [[0.0, 0.0], [1.0, 1.0]]})


def test_its_first_job_is_zerodfl_s_and_it_takes_no_notice_of_peers() -> None:
    """The same start, seed and schedule: only the exchange can make a difference."""
    policy = Local.start(LocalConfig(), CONTEXT, OWN)
    message = Message(
        mesh="m", fingerprint="f", policy="local", sender="b", round=1, phase="prompts", tensors=OWN
    )
    assert "exchanges nothing" in policy.fault(message)
    before = policy.state()
    assert policy.handle(0.0, PeerUp("b")) == policy.handle(0.0, Received(message)) == []
    assert policy.state() == before
    zerodfl = ZeroDFL.start(ZeroDFLConfig(), CONTEXT, OWN)
    assert policy.handle(0.0, RoundDue(1)) == zerodfl.handle(0.0, RoundDue(1)) != []


def test_the_setting_chooses_what_a_node_classifies_with(model: Any) -> None:
    assert registry.prompt_module("local") is Objective
    for config in (None, LocalConfig(), LocalConfig("prompt")):
        assert type(Objective(model, TuningSettings(), config)) is CoOp
    assert type(Objective(model, TuningSettings(), LocalConfig("gda"))) is OwnGaussian
