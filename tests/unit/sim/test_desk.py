"""The documents on a simulated disk, and a simulated operator."""

from __future__ import annotations

from fednode.core.events import Decided
from fednode.core.types import Document
from fednode.sim.desk import Desk

ONE, TWO = Document(1, "5" * 32, 3, b"one"), Document(2, "6" * 32, 9, b"two")


def test_an_operator_that_decides_nothing_is_asked_in_vain() -> None:
    desk = Desk()
    assert desk.offered(ONE) == []
    assert desk.held == {ONE.digest: ONE}


def test_a_decision_outlives_a_restart_and_refusals_are_known_at_once() -> None:
    desk = Desk(decide=lambda one: one == TWO)
    assert desk.offered(ONE) == [Decided(ONE.digest, False)]
    assert desk.offered(TWO) == [Decided(TWO.digest, True)]
    assert desk.again() == [Decided(ONE.digest, False), Decided(TWO.digest, True)]
    documents = desk.documents()
    assert documents.refused == {ONE.digest}
    assert documents.accepted == {TWO.digest}, "the node prepares it before it starts"


def test_what_is_older_than_the_one_in_force_is_no_news() -> None:
    desk = Desk(decide=lambda _: True)
    desk.offered(ONE)
    desk.force = TWO
    assert desk.again() == []
    assert desk.documents().newest == TWO


def test_a_backup_is_a_copy_and_a_wipe_leaves_the_operator() -> None:
    desk = Desk(decide=lambda _: True)
    desk.offered(ONE)
    before = desk.copy()
    desk.wipe()
    assert before.held
    assert not desk.held
    assert desk.offered(ONE)
