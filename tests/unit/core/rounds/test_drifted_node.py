"""A node that drifted apart from the others takes their state, in each part of a round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fednode.core.events import Adopt, Adopted, Effect, RoundDue
from fednode.core.rounds.engine import Rounds
from fednode.core.settings import MergeSettings
from fednode.core.types import Tensors
from tests.unit.core.rounds.staged import context, delivered, promptfl, trained
from tests.unit.core.rounds.test_engine import (
    NINES,
    begin,
    kinds,
    said,
    sends,
    state_of,
)


def apart(policy: Rounds) -> list[Effect]:
    """Let b, c and d begin round 1 from 9.0 in place of what a node begins from; begin round 2."""
    effects = begin(policy)
    for peer in "bcd":
        policy.handle(0.0, said(policy, peer, base=NINES.digest))
    (adopt,) = (one for one in trained(policy, delivered(policy, effects)) if type(one) is Adopt)
    return list(policy.handle(0.0, Adopted(adopt.snapshot)))


@pytest.mark.parametrize("early", [True, False], ids=["while it tunes", "while it waits"])
def test_who_drifted_merges_into_the_others_state_whenever_it_comes(early: bool) -> None:
    """In int8 changes travel: each node adds all changes to what it began the round from."""
    policy = promptfl(context("promptfl", "bcd"), wire_dtype="int8")
    apart(policy)
    tune = policy.handle(0.0, RoundDue(2))
    ((giver, _),) = [one for one in sends(tune) if one[1] == "want"]
    change = Tensors({"context": np.ones((1, 2))})
    told = [] if early else trained(policy, tune)
    policy.handle(0.0, state_of(giver, 1))
    taken: list[Effect] = []
    for peer in "bcd":
        heard = said(policy, peer, number=2, base=NINES.digest, tensors=change)
        taken += policy.handle(0.0, heard)
    assert kinds(taken) == ["round.taken"], "the contributions to this round claim it"
    told = told or trained(policy, tune)
    merged = delivered(policy, told)
    assert kinds(merged) == []
    (adopt,) = (one for one in trained(policy, merged) if isinstance(one, Adopt))
    assert np.allclose(adopt.snapshot.policy.tensors["context"], 10.0, atol=0.02)


def wants(effects: Sequence[Effect]) -> list[str]:
    return [to for to, phase in sends(effects) if phase == "want"]


def test_a_node_that_drifted_asks_again_in_each_round() -> None:
    """Under a robust merge, too, and though the others hold different states this time."""
    policy = promptfl(context("promptfl", "bcd"), merge=MergeSettings(rule="center"))
    apart(policy)
    tune = list(policy.handle(0.0, RoundDue(2)))
    (giver,) = wants(tune)
    policy.handle(0.0, state_of(giver, 1))
    told = trained(policy, tune)
    doubted: list[Effect] = []
    for peer in "bcd":
        base = NINES.digest if peer == giver else "ab" * 32 if peer == "c" else "cd" * 32
        doubted += policy.handle(0.0, said(policy, peer, number=2, base=base))
    assert kinds(doubted) == ["round.doubted"]
    (adopt,) = (one for one in trained(policy, delivered(policy, told)) if type(one) is Adopt)
    policy.handle(0.0, Adopted(adopt.snapshot))
    assert len(wants(list(policy.handle(0.0, RoundDue(3))))) == 1, "no deadline has passed"
