"""What the policy tunes is CoOp's one prompt, or nothing; `head` chooses."""

from __future__ import annotations

from typing import Any

from fednode import registry
from fednode.learn.class_sums import AloneObjective
from fednode.learn.context import ContextObjective
from fednode.learn.settings import TuningSettings
from fednode.policies.local.exchange import LocalConfig
from fednode.policies.local.objective import Objective


def test_the_setting_chooses_what_a_node_classifies_with(model: Any) -> None:
    assert registry.objective("local") is Objective
    for config in (None, LocalConfig(), LocalConfig("prompt")):
        assert type(Objective(model, TuningSettings(), config)) is ContextObjective
    for head in ("gda", "gda_zero_shot", "class_means"):
        assert type(Objective(model, TuningSettings(), LocalConfig(head))) is AloneObjective
