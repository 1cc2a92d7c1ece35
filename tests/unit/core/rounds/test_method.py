"""A method's plain hooks by value: what all nodes hold alike, what is trained, which shapes fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fednode.core.policy import NodeContext
from fednode.core.rounds.engine import Method
from fednode.core.rounds.method import Contribution, MethodState, Round, Sent
from fednode.core.settings import MergeSettings, RoundSettings
from fednode.core.types import EMPTY, PolicyState, Report, Tensors
from fednode.policies.diprompt import DiPrompT, DiPrompTConfig
from fednode.testing import frame

SHARED = Tensors({"context": [[1.0, 2.0]], "scale": [3.0]})
HELD = MethodState(
    SHARED, carry=Tensors({"momentum": [1.0]}), arrays=Tensors({"sum": [4.0], "own/seen": [5.0]})
)


@dataclass(frozen=True)
class Settings:
    wire_dtype: str = "float16"
    participants: int = 0
    merge: MergeSettings = field(default_factory=MergeSettings)


class Plain(Method):
    name = "plain"
    config_type = Settings

    def merge(self, now: Round, given: Sequence[Contribution]) -> MethodState:
        return now.draft


def method(context: NodeContext | None = None, **config: Any) -> Plain:
    return Plain(Settings(**config), context or frame("plain", rounds=RoundSettings(max=9)))


def test_what_all_nodes_hold_alike_leaves_out_a_node_s_own_arrays() -> None:
    assert set(HELD.packed()) == {"shared/context", "shared/scale", "arrays/sum"}


def test_a_state_that_is_taken_over_keeps_the_node_s_own_arrays_and_carry() -> None:
    other = MethodState(
        Tensors({"context": [[7.0, 7.0]], "scale": [7.0]}),
        arrays=Tensors({"sum": [8.0], "own/seen": [9.0]}),
    )
    taken = HELD.taking(other.packed())
    assert taken.shared == other.shared
    assert taken.carry == HELD.carry
    assert taken.arrays == Tensors({"sum": [8.0], "own/seen": [5.0]})
    assert HELD.taking(HELD.packed()) == HELD


def test_a_job_trains_the_draft_with_the_round_s_seed_and_is_not_measured() -> None:
    node = frame("plain", rounds=RoundSettings(max=9), domain="photo")
    draft = replace(HELD, shared=Tensors({"context": [[0.0, 0.0]], "scale": [0.0]}))
    job = method(node).job(Round(3, "prompts", HELD, draft))
    assert (job.round, job.stage, job.rounds, job.domain) == (3, "prompts", 9, "photo")
    assert (job.tensors, job.carry, job.measure) == (draft.shared, HELD.carry, False)
    assert job.seed == node.draw_seed(3, "prompts")


def test_a_node_sends_what_it_tuned_and_uses_what_is_shared() -> None:
    made, now = method(), Round(1, "prompts", HELD, HELD)
    tuned = Tensors({"context": [[9.0, 9.0]], "scale": [9.0]})
    report = Report(tensors=tuned, metrics={}, samples=8)
    assert made.contribution(now, report) == Sent(tuned, HELD)
    assert made.first(SHARED) == MethodState(SHARED)
    assert made.used(HELD) == SHARED
    assert made.using(HELD, tuned) == replace(HELD, shared=tuned)
    assert made.dtype("prompts") == "float16"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({"context": (1, 2), "scale": (1,)}, ""),
        ({}, ""),  # a node that trained nothing sends nothing
        ({"context": (2, 2), "scale": (1,)}, r"context is \[2, 2\] in phase .* it is \[1, 2\]"),
        ({"other": (1,)}, r"other is \[1\] .* here it is nothing of that name"),
        ({"scale": (1,)}, "carries scale alone; it takes context, scale"),
    ],
)
def test_a_contribution_has_all_shared_arrays_in_their_shapes(
    found: dict[str, tuple[int, ...]], text: str
) -> None:
    fault = method().shape_fault("prompts", HELD, found)
    assert re.search(text, fault) if text else fault == ""


def test_only_the_mean_trusts_every_node_and_lets_no_difference_stay() -> None:
    assert method().trusting
    assert not method().drifts
    krum = method(merge=MergeSettings(rule="krum"))
    assert not krum.trusting
    assert krum.drifts


CONFIG = DiPrompTConfig(domains=("art",))
NODE = frame("diprompt", rounds=RoundSettings(mode="sync", max=9))


def test_a_method_works_in_sync_alone_unless_it_says_more() -> None:
    assert (DiPrompT.modes, DiPrompT.shared_state) == (("sync",), True)
    assert DiPrompT.settings_fault(CONFIG, RoundSettings("sync", 9), "") == ""
    fault = DiPrompT.settings_fault(CONFIG, RoundSettings("async", 9), "")
    assert fault.startswith("rounds.mode is 'async'; policy diprompt works with sync alone")


def test_a_run_begins_with_the_method_s_first_state_and_goes_on_from_a_later_one() -> None:
    start = Tensors({"domain.art": [[1.0, 2.0]]})
    state = DiPrompT.start(CONFIG, NODE, start).state()
    first = DiPrompT(CONFIG, NODE).first(start)
    assert (state.round, state.tensors, state.arrays) == (0, first.shared, first.arrays)
    assert state.tuned == EMPTY
    later = PolicyState(4, state.tensors, state.tensors, arrays=state.arrays)
    assert DiPrompT.restore(CONFIG, NODE, later).state().round == 4
