"""The check of how often an honest node repeats itself to a peer that asks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from fednode.core.events import Received, Send
from fednode.core.rounds.exchange import AGAIN
from fednode.lab.sim.world import World
from fednode.lab.simulate.check import Violation
from fednode.lab.simulate.checkers import RepeatsItselfOnce
from tests.unit.core.scenes import message

SENT = [Send("b", message(sender="a"))]


def world(stored: int) -> World:
    """Return a node "a" that has stored a round."""
    held = SimpleNamespace(policy=SimpleNamespace(round=stored))
    return cast("World", SimpleNamespace(now=1.0, hosts={"a": SimpleNamespace(durable=held)}))


def asked(by: str = "b") -> Received:
    return Received(message(AGAIN, by))


def test_more_repeats_than_two_after_a_stored_round_break_the_promise() -> None:
    check = RepeatsItselfOnce()
    for stored in (3, 4):
        for _ in range(2):
            check.stepped(world(stored), "a", asked(), SENT)
    check.stepped(world(4), "a", asked("c"), SENT)
    with pytest.raises(Violation, match="repeats itself to b 3 times after round 4"):
        check.stepped(world(4), "a", asked(), SENT)


def test_requests_without_an_answer_other_messages_and_liars_do_not_count() -> None:
    for check in (RepeatsItselfOnce(), RepeatsItselfOnce(liars=("a",))):
        for _ in range(9):
            check.stepped(world(3), "a", asked(), [])
            check.stepped(world(3), "a", Received(message()), SENT)
            if check.liars:
                check.stepped(world(3), "a", asked(), SENT)


def test_a_restart_begins_a_new_count() -> None:
    check = RepeatsItselfOnce()
    for _ in range(5):
        check.started(world(3), "a")
        check.stepped(world(3), "a", asked(), SENT)
