"""A kernel assembled from what a host knows: what is filled in."""

from __future__ import annotations

import pytest

from fednode.core.facts import fingerprint
from fednode.core.kernel import kernel_of
from fednode.core.policy import NodeContext, start_seed
from fednode.core.reputation import Tolerance
from fednode.core.settings import Barrier, RoundSettings
from fednode.core.types import Tensors
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig

FACTS = {"policy.name": "zerodfl"}
FIRST = Tensors({"context": [[3.0, 4.0]]})  # its norm is 5


def context(mode: Barrier | None = None) -> NodeContext:
    return NodeContext(
        name="a", peers=("b",), mesh="m", seed=4, rounds=RoundSettings(mode=mode), start="own"
    )


@pytest.mark.parametrize(("mode", "wanted"), [(None, "async"), ("sync", "sync")])
def test_what_follows_from_policy_and_facts_is_filled_in(mode: Barrier | None, wanted: str) -> None:
    seen: list[int] = []

    def initial(seed: int) -> Tensors:
        seen.append(seed)
        return FIRST

    kernel = kernel_of(
        context(mode), ZeroDFL, ZeroDFLConfig(), initial, FACTS, None,
        tolerance=Tolerance(norm_ratio=3.0),
    )  # fmt: skip
    made = kernel.context
    assert (made.policy, made.fingerprint) == ("zerodfl", fingerprint(FACTS))
    assert made.rounds.mode == wanted
    assert made.norm_max == pytest.approx(15.0)
    assert seen == [start_seed("own", 4, "a")]
    assert kernel.policy.state().tensors == FIRST
