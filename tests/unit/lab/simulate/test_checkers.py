"""Checkers of the simulator by value: which repeats of a node break the promise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from fednode.core.events import Received, Send
from fednode.core.policy import RESEND_S
from fednode.core.rounds.exchange import AGAIN
from fednode.lab.sim.world import World
from fednode.lab.simulate.check import Violation
from fednode.lab.simulate.checkers import RepeatsItselfSlowly
from tests.unit.core.scenes import message

SENT = Send("b", message("prompts", "a"))
ASKED = Received(message(AGAIN, "b"))


def at(now: float) -> World:
    return cast("World", SimpleNamespace(now=now))


def begun(liars: tuple[str, ...] = ()) -> RepeatsItselfSlowly:
    check = RepeatsItselfSlowly(liars=liars)
    check.started(at(0.0), "a")
    return check


def test_three_equal_messages_in_a_moment_break_the_promise() -> None:
    check = begun()
    for now in (0.0, 0.1, RESEND_S, RESEND_S + 0.1):
        check.stepped(at(now), "a", ASKED, [SENT])
    with pytest.raises(Violation, match="sends 'prompts' of round 1 to b too often"):
        check.stepped(at(RESEND_S + 0.2), "a", ASKED, [SENT])


def test_other_peers_messages_of_the_kernel_liars_and_earlier_lives_do_not_count() -> None:
    for peer in "bcdefgh":
        begun().stepped(at(1.0), "a", ASKED, [Send(peer, message("prompts", "a"))] * 2)
    for check, sent in ((begun(), Send("b", message("ping", "a"))), (begun(("a",)), SENT)):
        check.stepped(at(1.0), "a", ASKED, [sent] * 9)
    check = begun()
    for _ in range(5):
        check.started(at(1.0), "a")
        check.stepped(at(1.0), "a", ASKED, [SENT])
