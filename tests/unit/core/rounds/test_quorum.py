"""How many members are enough to move a node, and how far they move it."""

from __future__ import annotations

import pytest

from fednode.core import events as ev
from fednode.core.policy import DEADLINE
from fednode.core.rounds.engine import Rounds
from fednode.core.rounds.quorum import half, most, quorum, reached
from fednode.core.types import Tensors
from fednode.testing import frame
from tests.unit.core.rounds.staged import trained
from tests.unit.core.rounds.test_engine import (
    begin,
    behind,
    claims,
    kinds,
    said,
    sends,
    state_of,
    waiting,
)


@pytest.mark.parametrize(
    ("others", "enough", "more"), [(2, 2, 2), (3, 2, 3), (4, 3, 3), (5, 3, 4), (6, 4, 4), (9, 5, 6)]
)
def test_more_than_half_of_all_members_are_needed(others: int, enough: int, more: int) -> None:
    """This node is a member, too: fewer than half of others + 1 are never enough, nor is half."""
    assert half(others) == enough
    assert most(others, others) == more
    assert 2 * half(others) >= others + 1
    assert 2 * most(others, others) > others + 1


@pytest.mark.parametrize(("live", "need"), [(5, 4), (4, 4), (3, 3), (2, 3), (0, 3)])
def test_half_is_enough_where_all_other_members_are_gone(live: int, need: int) -> None:
    assert most(5, live) == need


@pytest.mark.parametrize(
    ("listed", "known", "proof", "need"),
    [("b", "b", b"", 1), ("", "b", b"", 2), ("b", "bc", b"", 2), ("b", "b", b"chain", 2)],
)
def test_one_other_member_is_enough_only_where_peers_yaml_lists_one(
    listed: str, known: str, proof: bytes, need: int
) -> None:
    context = frame("promptfl", peers=tuple(listed), proof=proof)
    assert quorum(context, set(known), set(known)) == need


def test_a_round_is_reached_where_enough_members_reached_it() -> None:
    assert reached([5, 9, 7], 2) == 7
    assert reached([5, 9, 7], 1) == 9
    assert reached([5], 2) == 0
    assert reached([], 1) == 0


def test_half_of_the_members_move_a_node_only_if_all_others_are_gone() -> None:
    policy = waiting(peers="bcd")
    begin(policy)
    assert behind(policy, "bc") == "", "d is live, and says nothing"
    giver = next(one for one, phase in sends(down(policy, "d")) if phase == "want")
    policy.handle(0.0, state_of(giver))
    effects = claims(policy, "c" if giver == "b" else "b")
    assert kinds(effects) == ["round.taken"]


def down(policy: Rounds, peer: str) -> list[ev.Effect]:
    """Let a peer die; return what follows, the end of the round and the next one among it."""
    effects = [*policy.handle(0.0, ev.PeerDown(peer))]
    while not any(phase == "want" for _, phase in sends(effects)):
        effects += policy.handle(0.0, ev.TimerFired(DEADLINE))
        effects += trained(policy, effects)
        (adopt,) = (one for one in effects if isinstance(one, ev.Adopt))
        policy.handle(0.0, ev.Adopted(adopt.snapshot))
        effects = [*policy.handle(0.0, ev.RoundDue(policy.round + 1))]
    return effects


def test_a_state_two_rounds_beyond_all_contributions_is_not_looked_at() -> None:
    policy = waiting(peers="bcde")
    begin(policy)
    giver = behind(policy, "bcde")
    ((other, phase),) = sends(policy.handle(0.0, state_of(giver, after=9)))
    assert (phase, other != giver) == ("want", True)
    empty = said(policy, "b", number=99, tensors=Tensors({}))
    policy.handle(0.0, empty)
    assert policy._exchange.contributed["b"] == 7, "a message without arrays proves nothing"


@pytest.mark.parametrize(("listed", "asked"), [("b", "b"), ("bc", "")])
def test_if_peers_yaml_lists_one_other_member_this_member_is_enough(
    listed: str, asked: str
) -> None:
    """A third member that said goodbye counts while it is listed, because it may come back."""
    policy = waiting(peers=listed)
    policy.handle(0.0, ev.PeerDown("c"))
    due = ev.RoundDue(1, members=frozenset("b"))
    trained(policy, policy.handle(0.0, due))
    assert behind(policy, "b") == asked
