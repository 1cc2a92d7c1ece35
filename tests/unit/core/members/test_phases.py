"""The kernel's phases: the words on the wire, which older nodes and the metrics know."""

from __future__ import annotations

from fednode.core.members.phases import NOTED, PHASES, Phase


def test_phases_are_the_words_on_the_wire() -> None:
    assert {"hello", "ping", "indirect", "members", "bye"} == PHASES
    assert "prompts" not in PHASES
    assert NOTED < PHASES
    assert f"{Phase.HELLO}" == "hello"
