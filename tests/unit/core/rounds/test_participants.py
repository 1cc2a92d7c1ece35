"""A node of a round for which only some nodes are drawn: who tunes, sends, waits and merges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fednode.core import events as ev
from fednode.core.policy import DEADLINE
from fednode.core.rounds.exchange import sample
from fednode.core.types import Tensors
from tests.unit.core.rounds.staged import context, job, plan, told, trained


@pytest.mark.parametrize("agree", [True, False])
def test_both_stages_of_plan_are_of_the_drawn_nodes(agree: bool) -> None:
    """A node that is not drawn keeps the last prompts if the drawn ones merged different sets."""
    number = next(at for at in range(1, 500) if sample(1, at, set("abcd"), 2) == {"b", "c"})
    frame = context("plan", ("b", "c", "d"), max=500)
    policy = plan(frame, participants=2)
    before = policy.now.held.shared
    policy.handle(0.0, ev.RoundDue(number))
    drawn_node = plan(replace(frame, name="b", peers=("a", "c", "d")), participants=2)
    effects = trained(drawn_node, drawn_node.handle(0.0, ev.RoundDue(number)))
    local = told(effects, "prompts")
    moved = {name: one + np.float32(2.0) for name, one in local.tensors.items()}
    others = replace(local, sender="c", tensors=Tensors(moved))
    for one in (local, others):
        answers = policy.handle(0.0, ev.Received(one))
        assert not any(isinstance(effect, ev.Send) for effect in answers)
    assert policy.now.stage == "aggregators"
    drawn_node.handle(0.0, ev.Received(others))
    follow = drawn_node.handle(0.0, ev.TimerFired(DEADLINE))
    second = told(trained(drawn_node, follow), "aggregators")
    mine = second if agree else replace(second, base="f" * 64)
    policy.handle(0.0, ev.Received(mine))
    ended = policy.handle(0.0, ev.Received(replace(mine, sender="c")))
    kinds = [one.kind for one in ended if isinstance(one, ev.Record)]
    assert (job(ended).job.tensors == before) == (not agree)
    assert ("round.aborted" in kinds) == (not agree)
