"""Members that live and that this node cannot reach: when it warns, and in which words."""

from __future__ import annotations

import pytest

from fednode.core.events import Record
from fednode.core.members.table import Member, Members
from fednode.core.members.unreached import FAILURES, become, out_of_reach, warnings
from tests.unit.core.scenes import only

WHY = "the name no.such.host does not resolve"


def test_a_peer_that_speaks_between_failures_lives_and_is_out_of_reach() -> None:
    members = Members(("b",))
    members.heard("b", 1.0, 1)
    members.failed("b", 2.0, WHY)
    assert not members["b"].unreached
    members.heard("b", 3.0, 2)
    members.failed("b", 4.0, WHY)
    assert (members["b"].state, members["b"].unreached) == ("alive", WHY)
    assert not out_of_reach(members["b"])
    before = members["b"]
    members.failed("b", 5.0, WHY)
    assert members["b"].failures == FAILURES
    (said,) = only(become(before, members["b"]), Record)
    assert said.text == f"b speaks, but this node cannot reach it: {WHY}"
    members.failed("b", 6.0, WHY)
    assert warnings(members.view()) == [said.text]
    members.heard("b", 7.0, 3)
    assert (members["b"].unreached, members["b"].reason) == (WHY, WHY)
    members.heard("b", 8.0)  # an answer
    assert (members["b"].unreached, members["b"].reason, members["b"].failures) == ("", "", 0)


def test_a_peer_that_is_silent_between_failures_is_not_out_of_reach() -> None:
    members = Members(("b",))
    members.heard("b", 1.0, 1)
    for at in range(9):
        members.failed("b", 2.0 + at, WHY)
    assert not members["b"].unreached
    assert warnings(members.view()) == []


@pytest.mark.parametrize("state", ["dead", "left", "refused", "quarantined", "unknown"])
def test_only_live_members_are_out_of_reach(state: str) -> None:
    assert not out_of_reach(Member(name="b", state=state, unreached=WHY, failures=9))


def test_a_member_behind_relays_leads_to_the_relays() -> None:
    one = Member(name="b", state="alive", unreached=WHY, failures=9, address="relay")
    (text,) = warnings([one])
    assert text.startswith(f"b speaks, but this node cannot reach it: {WHY}; it is reached through")


def test_many_members_out_of_reach_are_one_sentence() -> None:
    found = [Member(name=name, state="alive", unreached=WHY, failures=9) for name in "bcdefg"]
    assert warnings(found) == [
        f"b, c, d, e and 2 more speak, but this node cannot reach them: {WHY}"
    ]
