"""Local health by value: which ends of a send make a node doubt itself, and by how much."""

from __future__ import annotations

import pytest

from fednode.core.events import Delivered, Undelivered
from fednode.core.members.health import FACTOR_MAX, Health
from fednode.core.members.phases import Phase
from tests.unit.core.scenes import message

PING, HELP = message("ping"), message(Phase.INDIRECT)


def unreachable(phase: str, code: str = "unreachable", sent: bool = True) -> Undelivered:
    return Undelivered("b", PING if phase == "ping" else HELP, code, "silence", sent)


def test_a_node_is_well_at_first_and_its_doubt_is_bounded() -> None:
    health = Health()
    assert (health.factor, health.patience) == (1, 1.0)
    seen = []
    for _ in range(FACTOR_MAX + 2):
        health.worse()
        seen.append(health.factor)
    assert seen == [2, 3, 4, 5, 6, 7, 8, 8, 8, 8]
    assert health.patience == 2.0


def test_patience_grows_evenly_with_the_factor() -> None:
    health = Health()
    health.factor = 4
    assert health.patience == pytest.approx(1 + 3 / 7)


def test_silent_helpers_make_it_worse_and_answered_pings_make_it_better() -> None:
    health = Health()
    health.sent(unreachable(Phase.INDIRECT))
    health.sent(unreachable(Phase.INDIRECT))
    assert health.factor == 3
    health.sent(Delivered("b", PING))
    assert health.factor == 2
    health.sent(unreachable("ping", "busy"))  # an answer, too
    health.sent(Delivered("b", PING))
    assert health.factor == 1


def test_what_says_nothing_of_this_node_changes_nothing() -> None:
    health = Health()
    health.worse()
    health.sent(unreachable("ping"))  # the ping's target may be dead: helpers will tell
    health.sent(unreachable(Phase.INDIRECT, "silent"))  # the helper answered
    health.sent(Delivered("b", HELP))
    health.sent(unreachable(Phase.INDIRECT, "busy", sent=False))  # it never left
    health.sent(unreachable("ping", "invalid", sent=False))
    assert health.factor == 2
