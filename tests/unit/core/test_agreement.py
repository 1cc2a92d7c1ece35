"""Peers that hold other prompts after the same round, and how often a node says so."""

from __future__ import annotations

from fednode.core.agreement import AGREES, DIFFERS, PEERS, ROUNDS_KEPT, Agreement
from fednode.core.events import Record
from tests.unit.core.scenes import only

LIVE = ("b", "c")


def test_who_differs_is_said_once_and_said_again_when_all_agree() -> None:
    made = Agreement(10.0)
    made.adopted(4, "aa")
    made.heard("b", 4, "aa")
    made.heard("c", 4, "bb")
    (said,) = only(made.look(0.0, LIVE), Record)
    assert (said.kind, said.level, said.fields[PEERS]) == (DIFFERS, "warning", ["c"])
    assert made.look(1.0, LIVE) == []
    made.heard("c", 4, "aa")
    assert made.look(9.0, LIVE) == []  # at most one every 10 s
    (said,) = only(made.look(10.0, LIVE), Record)
    assert (said.kind, made.apart(LIVE)) == (AGREES, ())


def test_only_equal_rounds_are_compared_whoever_is_there_first() -> None:
    made = Agreement(0.0)
    made.adopted(4, "aa")
    made.heard("b", 5, "cc")
    made.heard("c", 3, "cc")
    made.heard("c", 4, "")
    assert made.apart(LIVE) == ()
    made.adopted(5, "dd")
    assert made.apart(LIVE) == ("b",)
    assert made.apart(("c",)) == ()
    made.heard("c", 4, "dd")
    assert made.apart(LIVE) == ("b", "c")


def test_what_is_kept_is_bounded() -> None:
    made = Agreement(0.0)
    for number in range(1, 100):
        made.adopted(number, "aa")
    assert (made.digest(99), made.digest(99 - ROUNDS_KEPT)) == ("aa", "")
