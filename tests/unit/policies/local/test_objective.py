"""What the policy tunes is CoOp's one prompt; only the exchange is its own."""

from __future__ import annotations

from fednode import registry
from fednode.learn.context import ContextObjective
from fednode.policies.local.objective import Objective


def test_it_tunes_one_prompt_of_context_vectors() -> None:
    assert Objective is ContextObjective
    assert registry.objective("local") is Objective
