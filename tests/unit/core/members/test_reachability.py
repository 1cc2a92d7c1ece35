"""Who reaches whom: what peers say of this node's address, and members that it cannot reach."""

from __future__ import annotations

import pytest

from fednode.core.events import Effect, Record
from fednode.core.members.reachability import (
    EVERY_S,
    FAILURES,
    REACHED,
    SAID_MAX,
    UNREACHED,
    Reach,
    become,
    out_of_reach,
    warnings,
)
from fednode.core.members.table import Member, Members
from tests.unit.core.scenes import only

LATELY_S = 5.0
WHY = "the name no.such.host does not resolve"


def reach() -> Reach:
    return Reach("no.such.host:7443")


def kinds(effects: list[Effect]) -> list[str]:
    return [one.kind for one in only(effects, Record)]


def test_a_peer_that_cannot_reach_this_node_is_named_with_its_reason_once() -> None:
    made = reach()
    why = f"cannot send to no.such.host:7443: {WHY}"  # as the peer's transport says it
    (said,) = only(made.note_answer(1.0, "b", why, LATELY_S), Record)
    assert (said.kind, said.level) == (UNREACHED, "warning")
    assert said.text == (
        "b says that it cannot reach this node at no.such.host:7443: the name no.such.host does "
        "not resolve; set `advertise`, or the address in peers.yaml, to an address that the others "
        "reach"
    )
    assert made.warnings(["b", "c"]) == [said.text]
    for second in range(2, 200):
        assert made.note_answer(float(second), "b", WHY, LATELY_S) == []
    assert made.warnings(["c"]) == []  # what a peer said that is gone counts no more


def test_many_peers_are_one_sentence_with_few_names() -> None:
    made = reach()
    for name in "bcdef":
        made.note_answer(1.0, name, WHY, LATELY_S)
    (said,) = made.warnings(list("bcdefg"))
    assert said.startswith("5 of 6 live peers (b, c, d, ...) say that they cannot reach this node")


def test_what_a_peer_says_is_one_short_printable_line() -> None:
    made = reach()
    made.note_answer(1.0, "b", "\x1b[2J" + "x\n" * 5000, LATELY_S)
    (said,) = made.warnings(["b"])
    assert said.isprintable()
    assert len(said) < SAID_MAX + 250


def test_a_peer_whose_own_messages_come_is_not_believed() -> None:
    made = reach()
    made.note_message(1.0, "b")
    assert made.note_answer(2.0, "b", WHY, LATELY_S) == []
    assert made.warnings(["b"]) == []
    assert kinds(made.note_answer(1.0 + LATELY_S + 0.1, "b", WHY, LATELY_S)) == [UNREACHED]
    assert kinds(made.note_message(9.0, "b")) == [REACHED]
    assert made.warnings(["b"]) == []


def test_a_liar_that_changes_its_mind_writes_one_record_a_minute() -> None:
    made, records = reach(), 0
    for at in range(600):
        now = 10.0 * at
        records += len(made.note_answer(now, "b", WHY, 1.0))
        records += kinds(made.note_message(now + 5.0, "b")).count(UNREACHED)
    assert records <= 6000.0 / EVERY_S


def test_an_answer_without_a_complaint_takes_it_back() -> None:
    made = reach()
    made.note_answer(1.0, "b", WHY, LATELY_S)
    made.note_answer(2.0, "b", "", LATELY_S)
    assert made.warnings(["b"]) == []


def test_a_node_behind_relays_is_told_to_look_at_them_and_not_at_its_address() -> None:
    made = Reach("relay")
    (said,) = only(made.note_answer(9.0, "b", "it does not wait there", LATELY_S), Record)
    assert said.text == (
        "b says that it cannot reach this node through a relay: it does not wait there; `fednode "
        "status` tells whether this node waits at its relays; all nodes need the same `relays`"
    )
    assert "advertise" not in str(made.warnings(["b"]))


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
