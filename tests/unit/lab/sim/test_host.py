"""A simulated node's machine: how verdicts travel, and what a hostile node changes."""

from __future__ import annotations

import pytest

from fednode.core.events import AckCode
from fednode.lab.sim.host import Liar, travelled
from tests.unit.core.scenes import message


@pytest.mark.parametrize("code", ["ok", "stale", "refused", "invalid", "busy"])
def test_a_verdict_is_read_as_it_was_meant(code: AckCode) -> None:
    ack = travelled(code, "because")
    assert (ack.code, ack.detail) == (code, "because")


def test_a_detail_travels_as_one_printable_line() -> None:
    assert travelled("refused", "x\x1b[2J\ny").detail.isprintable()


def test_a_hostile_node_says_what_it_wants_and_answers_honestly_unless_it_is_told() -> None:
    sent = message()
    other = message(sender="c")
    liar = Liar(say=lambda to, one: [(to, one), ("d", other)])
    assert liar.say("b", sent) == [("b", sent), ("d", other)]
    assert liar.answer("b", sent, "ok", "detail") == ("ok", "detail")
    deaf = Liar(say=lambda to, one: [], answer=lambda *_: ("busy", ""))
    assert deaf.say("b", sent) == []
    assert deaf.answer("b", sent, "ok", "detail") == ("busy", "")
