"""What the policy tunes is CoOp's one prompt; only the exchange is its own."""

from __future__ import annotations

from fednode import registry
from fednode.learn.coop import CoOp
from fednode.policies.promptfl import PromptFL


def test_it_tunes_one_prompt_of_context_vectors() -> None:
    assert registry.prompt_module("promptfl") is PromptFL.prompts is CoOp
