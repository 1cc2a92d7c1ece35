"""A node of a round for which only some nodes are drawn: who tunes, sends, waits and merges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fednode.core import events as ev
from fednode.core.policy import DEADLINE
from fednode.core.rounds.exchange import sample
from fednode.core.types import Tensors
from tests.unit.core.rounds.staged import (
    context,
    job,
    plan,
    told,
    trained,
)

PEERS = ("b", "c", "d")
EVERYONE = frozenset({"a", *PEERS})


def number_with(count: int, *names: str, without: str = "", after: int = 0) -> int:
    """Return the first round that draws some nodes and not another."""
    return next(
        number
        for number in range(after + 1, 500)
        if {*names} <= sample(1, number, EVERYONE, count)
        and without not in sample(1, number, EVERYONE, count)
    )


def kinds(effects: Sequence[ev.Effect]) -> list[str]:
    return [one.kind for one in effects if isinstance(one, ev.Record)]


def phases(effects: Sequence[ev.Effect]) -> list[tuple[str, str]]:
    return [(one.to, one.message.phase) for one in effects if isinstance(one, ev.Send)]


@pytest.mark.parametrize("agree", [True, False])
def test_both_stages_of_plan_are_of_the_drawn_nodes(agree: bool) -> None:
    """A node that is not drawn keeps the last prompts if the drawn ones merged different sets."""
    number = number_with(2, "b", "c")
    frame = context("plan", PEERS, max=500)
    policy, other = (plan(frame, participants=2) for _ in range(2))
    policy.handle(0.0, ev.RoundDue(number))
    drawn_node = plan(replace(frame, name="b", peers=("a", "c", "d")), participants=2)
    effects = trained(drawn_node, drawn_node.handle(0.0, ev.RoundDue(number)))
    local = told(effects, "prompts")
    others = replace(local, sender="c", tensors=_plus(local.tensors, 2.0))
    for one in (local, others):
        assert not phases(policy.handle(0.0, ev.Received(one)))
    assert policy.now.stage == "aggregators"
    drawn_node.handle(0.0, ev.Received(others))
    follow = drawn_node.handle(0.0, ev.TimerFired(DEADLINE))
    second = told(trained(drawn_node, follow), "aggregators")
    mine = second if agree else replace(second, base="f" * 64)
    policy.handle(0.0, ev.Received(mine))
    ended = policy.handle(0.0, ev.Received(replace(mine, sender="c")))
    before = other.now.held.shared
    assert (job(ended).job.tensors == before) == (not agree)
    assert ("round.aborted" in kinds(ended)) == (not agree)


def _plus(tensors: Tensors, by: float) -> Tensors:
    return Tensors({name: one + np.float32(by) for name, one in tensors.items()})
