"""Errands by value: who waits for whom, and what they are told."""

from __future__ import annotations

from dataclasses import replace

from fednode.core.events import Answer
from fednode.core.members.errands import ERRANDS_MAX, Errands
from fednode.core.members.lists import ANSWER
from tests.unit.core.scenes import message

PING = message("ping", facts={ANSWER: "yes"})


def test_only_the_first_who_waits_for_a_target_lets_it_be_pinged() -> None:
    errands = Errands()
    assert errands.begin("c", 1)
    assert not errands.begin("c", 2)
    assert errands.begin("d", 3)


def test_all_who_wait_are_told_once_and_nobody_else() -> None:
    errands = Errands()
    for token, target in ((1, "c"), (2, "c"), (3, "d")):
        errands.begin(target, token)
    assert errands.end("c", PING, "ok") == [Answer(1, "ok", ""), Answer(2, "ok", "")]
    assert errands.end("c", PING, "ok") == []
    assert errands.end("d", PING, "silent") == [Answer(3, "silent", "d does not answer")]


def test_a_message_that_was_no_errand_s_ping_ends_no_errand() -> None:
    errands = Errands()
    errands.begin("c", 1)
    assert errands.end("c", replace(PING, phase="hello"), "ok") == []
    assert errands.end("c", replace(PING, facts={}), "ok") == []
    assert errands.end("c", PING, "ok") == [Answer(1, "ok", "")]


def test_the_number_of_errands_is_bounded_over_all_targets() -> None:
    errands = Errands()
    for token in range(ERRANDS_MAX - 1):
        errands.begin(f"p{token % 3}", token)
    seen = [errands.full]
    errands.begin("last", 99)
    seen.append(errands.full)
    errands.end("last", PING, "ok")
    assert [*seen, errands.full] == [False, True, False]
