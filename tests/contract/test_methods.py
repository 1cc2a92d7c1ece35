"""The contract for authors of methods: our own methods keep it, and planted faults break it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from fednode.policies.local import Local, LocalConfig
from fednode.policies.plan import Plan, PlanConfig
from fednode.policies.promptfl import PromptFL, PromptFLConfig
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from fednode.policy import Contribution, MethodState, Round, Tensors
from fednode.testing import CONTEXT, MethodCase, MethodContract
from tests.contract.test_policies import plan

CASES: Final = {
    "promptfl": MethodCase(PromptFL, PromptFLConfig()),
    "promptfl int8": MethodCase(PromptFL, PromptFLConfig(wire_dtype="int8")),
    "plan": MethodCase(Plan, PlanConfig(reduction=2), plan().shapes),
    "zerodfl": MethodCase(ZeroDFL, ZeroDFLConfig(recipients=1)),
    "zerodfl, two rows": MethodCase(ZeroDFL, ZeroDFLConfig(rows_shared=2)),
    "local": MethodCase(Local, LocalConfig()),
}


class TestOurs(MethodContract):
    @pytest.fixture(params=CASES)
    def case(self, request: pytest.FixtureRequest) -> MethodCase:
        return CASES[request.param]


def merging(change: Any) -> Any:
    """Return PromptFL with a change of its merged arrays, by method, round and array."""

    def merge(self: Any, now: Round, given: Sequence[Contribution]) -> MethodState:
        merged = PromptFL.merge(self, now, given)
        with np.errstate(all="ignore"):
            shared = {name: change(self, now, array) for name, array in merged.shared.items()}
        return replace(merged, shared=Tensors(shared))

    return type("Planted", (PromptFL,), {"__module__": __name__, "merge": merge, "merges": 0})


def remembering(self: Any, _: Round, array: Any) -> Any:
    self.merges += 1
    return array + self.merges


class Counting(PromptFL):
    """Fails if no node contributed anything."""

    def merge(self, now: Round, given: Sequence[Contribution]) -> MethodState:
        assert given[0].tensors, "nothing to merge"
        return super().merge(now, given)


class Inviting(ZeroDFL):
    """Sends to twice as many peers as it may."""

    def recipients(self, count: int, peers: Any, chosen: Any, draw: random.Random) -> list[str]:
        return super().recipients(2 * count, peers, chosen, draw)


@pytest.mark.parametrize(
    ("method", "broken"),
    [
        (merging(remembering), "a_restarted_node_goes_on_alike"),
        (
            merging(lambda self, now, array: array + random.random()),
            "equal_arguments_give_equal_results",
        ),
        (
            merging(lambda self, now, array: array + ord(self.context.name)),
            "all_nodes_merge_to_equal_bits",
        ),
        (Counting, "a_node_that_hears_nothing_goes_on"),
        (
            merging(lambda self, now, array: array / (now.number - 2)),
            "arrays_keep_their_shapes_and_stay_finite",
        ),
        (Inviting, "its_class_and_hooks_have_the_form_of_a_method"),
    ],
)
def test_a_planted_fault_breaks_the_contract(method: Any, broken: str) -> None:
    case = MethodCase(method, method.config_type(), CONTEXT)
    with pytest.raises(AssertionError):
        getattr(MethodContract(), f"test_{broken}")(case)
