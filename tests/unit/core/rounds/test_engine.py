"""Single steps of mesh-wide rounds by value: digests, two stages, contributions that fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fednode.core import events as ev
from fednode.core.facts import merged_digest
from fednode.core.rounds.averaging import Averaging, AveragingConfig
from fednode.core.rounds.catchup import ADOPTED
from fednode.core.rounds.engine import Rounds
from fednode.core.rounds.method import Contribution, MethodState, Round
from fednode.core.types import OWN, Message, Tensors
from fednode.policies import plan as aggregator
from fednode.policies.plan import AGGREGATORS, PROMPTS
from tests.unit.core.rounds.staged import (
    PEERS,
    PLAN_SHAPES,
    context,
    delivered,
    plan,
    promptfl,
    told,
    trained,
    up,
)
from tests.unit.policies.tiny import drawn


def spoken(**set_: Any) -> Message:
    """Return a peer's message."""
    return Message(**{"mesh": "m", "fingerprint": "f", "policy": "promptfl", **set_})


def waiting(peers: Sequence[str] = PEERS) -> Rounds:
    return promptfl(context("promptfl", peers))


def begin(policy: Rounds, number: int = 1) -> list[ev.Effect]:
    return trained(policy, policy.handle(0.0, ev.RoundDue(number)))


def said(
    policy: Rounds, peer: str, value: float = 3.0, number: int = 1, **set_: Any
) -> ev.Received:
    tensors = Tensors({"context": np.full((1, 2), value)})
    based = policy.now.held.digest
    made = spoken(
        sender=peer, round=number, phase="prompts", tensors=tensors, base=based, samples=8
    )
    return ev.Received(replace(made, **set_))


def kinds(effects: Sequence[ev.Effect]) -> list[str]:
    return [one.kind for one in effects if isinstance(one, ev.Record)]


def test_contributions_name_the_whole_state_that_all_nodes_hold_alike() -> None:
    """Two nodes with equal prompts and different arrays hold different states."""
    policy = waiting()
    (first, _) = (one.message for one in begin(policy) if isinstance(one, ev.Send))
    assert first.base == policy.state().digest == policy.now.held.packed().digest
    other = replace(policy.state(), arrays=Tensors({"pool": [1.0], OWN + "mine": [2.0]}))
    assert other.digest != policy.state().digest
    assert replace(other, arrays=Tensors({"pool": [1.0]})).digest == other.digest


@pytest.mark.parametrize("adopted", ["", "-1", "x", "1" * 19])
def test_a_state_without_a_round_is_no_state(adopted: str) -> None:
    shared = Tensors({"shared/context": np.zeros((1, 2))})
    facts = {ADOPTED: adopted} if adopted else {}
    state = spoken(sender="c", round=7, phase="state", tensors=shared, facts=facts)
    assert "does not carry" in waiting().fault(state)


def first_stage(policy: Rounds, number: int = 1) -> tuple[Tensors, Tensors, list[ev.Effect]]:
    """Exchange local prompts of PLAN with node b; return the own ones, b's, and what follows."""
    base, effects = policy.now.held.digest, begin(policy, number)
    own = told(effects, PROMPTS)
    local = drawn(Tensors({name: np.zeros(shape) for name, shape in PLAN_SHAPES.items()}), 5)
    theirs = replace(own, sender="b", base=base, tensors=local)
    policy.handle(0.0, ev.Received(theirs))
    return own.tensors, local, trained(policy, delivered(policy, effects))


def second_stage(
    policy: Rounds, effects: list[ev.Effect], **changes: Any
) -> tuple[Tensors, list[ev.Effect]]:
    """Let node b say what this node says, with changes; return that and what follows."""
    own = told(effects, AGGREGATORS)
    policy.handle(0.0, ev.Received(replace(own, sender="b", **changes)))
    return own.tensors, delivered(policy, effects)


def test_a_second_exchange_over_other_prompts_gives_the_round_up() -> None:
    policy = plan(context("plan", ("b",)))
    before = policy.now.held
    own, local, effects = first_stage(policy)
    # The digest is of both contributions: the peer that heard others has another.
    assert told(effects, AGGREGATORS).base == merged_digest({"a": own, "b": local})
    _, ended = second_stage(policy, effects, base=merged_digest({"b": local}))
    assert kinds(ended) == ["round.aborted"]
    adopt = trained(policy, ended)[-1]
    assert isinstance(adopt, ev.Adopt)
    assert adopt.snapshot.policy.tensors == before.shared
    assert adopt.snapshot.policy.round == 1
    assert adopt.givers == (), "the first stage merged a peer's prompts, the round did not"


def test_a_second_exchange_over_the_same_prompts_makes_new_global_ones() -> None:
    policy = plan(context("plan", ("b",)))
    own, local, effects = first_stage(policy)
    ours, ended = second_stage(policy, effects)
    adopt = trained(policy, ended)[-1]
    assert isinstance(adopt, ev.Adopt)
    found = adopt.snapshot.policy.tensors
    for name in PLAN_SHAPES:
        wanted = aggregator.global_prompts(ours, name, [own[name], local[name]], False)
        assert np.array_equal(found[name], wanted)


def test_a_peer_is_in_time_only_with_the_last_stage_of_a_round() -> None:
    """A peer that sends PLAN's first stage alone makes all others wait for the second."""
    policy = plan(context("plan", ("b",)))
    policy.stragglers.missed(["b"], 1)
    _, _, effects = first_stage(policy, 2)  # in round 2 it is waited for again
    assert "b" in policy.stragglers.records
    second_stage(policy, effects)
    assert policy.stragglers.records == {}


class Picky(Averaging):
    """A method that fails where numbers of its peers are not as it likes them."""

    name = "promptfl"

    def merge(self, now: Round, given: Sequence[Contribution]) -> MethodState:
        values = {float(one.tensors["context"][0, 0]) for one in given}
        if 7.0 in values or {5.0, 6.0} <= values:
            raise ValueError(f"cannot merge {sorted(values)}")
        return super().merge(now, given)


@pytest.mark.parametrize(
    ("values", "blamed", "merged"),
    [
        ((7.0, 3.0), ["b"], (1.0 + 3.0) / 2),
        ((3.0, 7.0), ["c"], (1.0 + 3.0) / 2),
        ((7.0, 7.0), ["b", "c"], 1.0),
        ((5.0, 6.0), [None], 0.0),
    ],
)
def test_a_contribution_that_cannot_be_merged_is_left_out(
    values: Sequence[float], blamed: list[str | None], merged: float
) -> None:
    start = Tensors({"context": np.zeros((1, 2))})
    policy = up(Picky.start(AveragingConfig(), context("promptfl", PEERS), start))
    effects = begin(policy)
    for peer, value in zip(PEERS, values, strict=True):
        policy.handle(0.0, said(policy, peer, value))
    effects = delivered(policy, effects)
    records = [one for one in effects if isinstance(one, ev.Record) and one.cause]
    assert [one.fields.get("peer") for one in records] == blamed
    adopt = trained(policy, effects)[-1]
    assert isinstance(adopt, ev.Adopt)
    assert np.allclose(adopt.snapshot.policy.tensors["context"], merged)
