"""A node of a round for which only some nodes are drawn: who tunes, sends, waits and merges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fednode.core import events as ev
from fednode.core.policy import DEADLINE
from fednode.core.rounds.engine import Rounds
from fednode.core.rounds.exchange import sample
from fednode.core.settings import MergeSettings
from fednode.core.types import MEASURE, Tensors
from fednode.policies.promptfl import PromptFLConfig
from tests.unit.core.rounds.staged import (
    START,
    context,
    job,
    plan,
    promptfl,
    row,
    told,
    trained,
    up,
)
from tests.unit.policies.methods import PROMPTFL

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


def node(count: int, **rounds: Any) -> Rounds:
    return promptfl(context("promptfl", PEERS, max=500, **rounds), participants=count)


def said(policy: Rounds, peer: str, value: float, number: int = 0, **set_: Any) -> ev.Received:
    like = policy.context.message(number or policy.now.number, "prompts")
    base = policy.now.held.digest
    made = replace(like, sender=peer, tensors=row(value), samples=8, base=base)
    return ev.Received(replace(made, **set_))


def kinds(effects: Sequence[ev.Effect]) -> list[str]:
    return [one.kind for one in effects if isinstance(one, ev.Record)]


def phases(effects: Sequence[ev.Effect]) -> list[tuple[str, str]]:
    return [(one.to, one.message.phase) for one in effects if isinstance(one, ev.Send)]


def test_a_node_that_is_not_drawn_only_merges_what_the_drawn_ones_send() -> None:
    number = number_with(2, "b", "c")
    policy = node(2)
    assert policy.state().round == 0
    effects = list(policy.handle(0.0, ev.RoundDue(number)))
    assert not any(isinstance(one, ev.Tune | ev.Send) for one in effects)
    assert policy.activity == "exchanging"
    assert policy.handle(0.0, said(policy, "b", 2.0)) == []
    merged = policy.handle(0.0, said(policy, "c", 6.0))
    assert job(merged).job.stage == MEASURE
    assert job(merged).job.tensors == row(4.0)
    adopt = trained(policy, merged)[-1]
    assert isinstance(adopt, ev.Adopt)
    assert adopt.snapshot.policy.tensors == row(4.0)
    assert adopt.givers == ("b", "c")


def test_a_drawn_node_waits_for_the_drawn_ones_alone() -> None:
    number = number_with(2, "a", "b")
    policy = node(2)
    effects = trained(policy, policy.handle(0.0, ev.RoundDue(number)))
    assert sorted(phases(effects)) == [(peer, "prompts") for peer in PEERS], "all get it"
    policy.handle(0.0, said(policy, "b", 3.0))
    own = told(effects, "prompts")
    for one in effects:
        if isinstance(one, ev.Send) and one.to != "b":
            assert policy.activity == "exchanging"  # b has not acknowledged; c and d need not
    merged = policy.handle(0.0, ev.Delivered("b", own))
    assert job(merged).job.tensors == row(2.0)


def test_all_nodes_of_a_round_merge_the_same() -> None:
    """Drawn or not, each node ends with the mean of the two drawn ones."""
    number = number_with(2, "a", "b", without="c")
    ends = []
    for name in sorted(EVERYONE):
        frame = context("promptfl", sorted(EVERYONE - {name}), max=500)
        policy = promptfl(replace(frame, name=name), participants=2)
        effects = list(policy.handle(0.0, ev.RoundDue(number)))
        if any(isinstance(one, ev.Tune) for one in effects):
            assert name in {"a", "b"}
            effects = trained(policy, effects, {"a": 1.0, "b": 5.0}[name])
        for peer, value in (("a", 1.0), ("b", 5.0)):
            if peer != name:
                effects += policy.handle(0.0, said(policy, peer, value))
        effects += policy.handle(0.0, ev.TimerFired(DEADLINE)) if name in {"a", "b"} else []
        ends.append(job([one for one in effects if _measures(one)]).job.tensors)
    assert ends == [row(3.0)] * 4


def _measures(one: ev.Effect) -> bool:
    return isinstance(one, ev.Tune) and one.job.stage == MEASURE


def test_dead_nodes_that_were_drawn_leave_the_prompts_as_they_are() -> None:
    number = number_with(2, "b", "c")
    policy = node(2)
    policy.handle(0.0, ev.RoundDue(number))
    assert policy.handle(0.0, ev.PeerDown("b")) == []
    effects = policy.handle(0.0, ev.PeerDown("c"))
    assert kinds(effects) == ["round.aborted"]
    assert job(effects).job.tensors == row(0.0)


def test_the_members_of_the_mesh_are_drawn_not_those_of_peers_yaml() -> None:
    """A node that peers.yaml does not list is drawn as soon as the node knows it."""
    everyone = EVERYONE | {"new"}
    number = next(one for one in range(1, 500) if sample(1, one, everyone, 1) == {"new"})
    policy = node(1)
    policy.handle(0.0, ev.RoundDue(number, members=everyone - {"a"}))
    policy.handle(0.0, said(policy, "new", 9.0))
    assert policy._exchange.participates("new", number)
    assert not policy._exchange.participates_now


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


def test_a_contribution_from_other_prompts_does_not_outvote_by_a_node_that_listens() -> None:
    """Of two drawn nodes both began from other prompts than this node, which has no vote."""
    number = number_with(2, "b", "c")
    config = PromptFLConfig(participants=2, merge=MergeSettings(rule="median"))
    node = context("promptfl", PEERS, max=500)
    state = replace(PROMPTFL.start(config, node, START).state(), round=number - 1)
    policy = up(PROMPTFL.restore(config, node, state))
    policy.handle(0.0, ev.RoundDue(number))
    base = "e" * 64
    policy.handle(0.0, said(policy, "b", 2.0, base=base))
    effects = policy.handle(0.0, said(policy, "c", 6.0, base=base))
    assert kinds(effects) == ["round.drift"]
    assert not policy.now.base_agrees
    adopt = trained(policy, effects)[-1]
    assert isinstance(adopt, ev.Adopt)
    policy.handle(0.0, ev.Adopted(adopt.snapshot))
    asked = policy.handle(0.0, ev.RoundDue(number + 1))
    assert [one for _, one in phases(asked)] == ["want"] * 2, "of four members half must hold it"
