"""Turns by value: a shuffled round-robin, and greetings that wait for an interval."""

from __future__ import annotations

import random

from fednode.core.members.table import LIVE, Members
from fednode.core.members.turns import GREETED_MAX, Greetings, Rota


def rota(*names: str) -> tuple[Members, Rota]:
    members = Members(names)
    for name in names:
        members.heard(name, 1.0, 1)
    seeds = iter(range(100))
    return members, Rota(members, LIVE, lambda: random.Random(next(seeds)))


def test_every_member_has_its_turn_before_any_has_two() -> None:
    members, turns = rota(*"bcdefg")
    orders = [tuple(turns.next(members.live()) for _ in "bcdefg") for _ in range(4)]
    assert all(sorted(order) == list("bcdefg") for order in orders)
    assert len(set(orders)) > 1  # each turn is shuffled anew


def test_a_member_that_left_these_states_loses_its_turn() -> None:
    members, turns = rota("b", "c", "d")
    first = turns.next(members.live())
    (gone, other) = (name for name in "bcd" if name != first)
    members.suspect(gone, "silent")
    members.bury(gone)
    assert turns.next(members.live()) == other
    assert {turns.next(members.live()) for _ in range(4)} == {first, other}


def test_with_nobody_there_it_is_nobody_s_turn() -> None:
    _, turns = rota()
    assert turns.next(()) == ""


def test_greetings_begin_behind_the_node_s_own_name_and_come_sorted() -> None:
    names = [f"p{number:03}" for number in range(GREETED_MAX + 3)]
    greetings = Greetings(Members(names))
    assert greetings.first("p002x") == sorted([*names[3:], *names[:3]][:GREETED_MAX])
    assert greetings
    assert greetings.interval() == names[:3]
    assert not greetings


def test_all_absent_members_are_greeted_at_once_up_to_the_bound() -> None:
    names = [f"p{number:03}" for number in range(GREETED_MAX + 3)]
    members = Members(names)
    members.heard("p001", 1.0, 1)
    greetings = Greetings(members)
    absent = [name for name in names if name != "p001"]
    assert greetings.absent() == absent[:GREETED_MAX]
    assert greetings.interval() == absent[GREETED_MAX:]


def test_a_member_that_was_heard_meanwhile_is_not_greeted() -> None:
    names = [f"p{number:03}" for number in range(GREETED_MAX + 3)]
    members = Members(names)
    greetings = Greetings(members)
    greetings.first("a")
    members.heard(names[-1], 1.0, 1)
    assert greetings.interval() == names[-3:-1]


def test_members_beyond_an_interval_s_room_wait_for_the_next_one() -> None:
    names = [f"p{number:03}" for number in range(GREETED_MAX + 2)]
    greetings = Greetings(Members(names))
    assert greetings.add(names[:1]) == names[:1]
    assert greetings.add(names[1:]) == names[1:GREETED_MAX]
    assert greetings.add(["late"]) == []
    assert greetings
