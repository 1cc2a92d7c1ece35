"""How many members are enough to move a node, and how far they move it."""

from __future__ import annotations

import pytest

from fednode.core.rounds.quorum import at_least_half, majority, quorum, reached
from fednode.testing import frame


@pytest.mark.parametrize(
    ("others", "enough", "more"), [(2, 2, 2), (3, 2, 3), (4, 3, 3), (5, 3, 4), (6, 4, 4), (9, 5, 6)]
)
def test_more_than_half_of_all_members_are_needed(others: int, enough: int, more: int) -> None:
    """This node is a member, too: fewer than half of others + 1 are never enough, nor is half."""
    assert at_least_half(others) == enough
    assert majority(others, others) == more
    assert 2 * at_least_half(others) >= others + 1
    assert 2 * majority(others, others) > others + 1


@pytest.mark.parametrize(("live", "need"), [(5, 4), (4, 4), (3, 3), (2, 3), (0, 3)])
def test_half_is_enough_where_all_other_members_are_gone(live: int, need: int) -> None:
    assert majority(5, live) == need


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
