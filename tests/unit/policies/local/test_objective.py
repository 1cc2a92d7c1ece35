"""What the policy tunes is CoOp's one prompt, or nothing; `head` chooses."""

from __future__ import annotations

from typing import Any

from fednode import registry
from fednode.learn.coop import CoOp
from fednode.learn.settings import TuningSettings
from fednode.policies.local import LocalConfig, OwnGaussian
from fednode.policies.local import head as Objective


def test_the_setting_chooses_what_a_node_classifies_with(model: Any) -> None:
    assert registry.prompt_module("local") is Objective
    for config in (None, LocalConfig(), LocalConfig("prompt")):
        assert type(Objective(model, TuningSettings(), config)) is CoOp
    assert type(Objective(model, TuningSettings(), LocalConfig("gda"))) is OwnGaussian
