"""Bugs in what a node says and does about an older state: the checker OlderIsTrue finds each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from fednode.core.events import Effect, Record
from fednode.core.starts import COPIED, Boots, Older
from fednode.core.types import Account, Message
from fednode.lab.commands.simulate import load
from fednode.lab.simulate.checkers import OlderIsTrue
from fednode.lab.simulate.scenario import draw, play
from tests.simulation.test_planted_bugs import FILE

Plant = Callable[[pytest.MonkeyPatch], None]
BACKUPS: Final[Mapping[str, int]] = {
    "crashes": 9,
    "backups": 6,
    **dict.fromkeys(("cuts", "one_way", "clogs", "full_disks", "loss", "pauses", "wipes"), 0),
}
"""Restored backups and crashes, and nothing that keeps a node from learning of them."""


def any_word_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Older, "_seen_by_most", lambda self: max(self._words.values()))


def the_paused_speak_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Older, "permitted", lambda self, effects: effects)


def a_restart_forgets_that_nobody_decided(patch: pytest.MonkeyPatch) -> None:
    right = Older.__init__

    def begin(self: Older, context: Any, members: Any, number: int, account: Account) -> None:
        right(self, context, members, number, replace(account, undecided=""))

    patch.setattr(Older, "__init__", begin)


def each_late_message_is_a_second_process(patch: pytest.MonkeyPatch) -> None:
    right = Boots.heard

    def heard(self: Boots, now: float, message: Message, key: str, late_s: float) -> list[Effect]:
        found, held = right(self, now, message, key, late_s), self._starts.get(message.sender)
        if held is not None and held.last_s == now:
            return [Record(COPIED, "an id has come back", fields={"peer": message.sender})]
        return found

    patch.setattr(Boots, "heard", heard)


@pytest.mark.parametrize(
    ("plant", "lies", "more", "seed"),
    [
        (any_word_is_believed, "false-past", {}, 1),
        (the_paused_speak_on, "", {}, 6),
        (a_restart_forgets_that_nobody_decided, "nobody", BACKUPS, 6),
        (each_late_message_is_a_second_process, "nobody", {"crashes": 6}, 4),
    ],
)
def test_a_bug_about_older_states_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, lies: str, more: Mapping[str, int], seed: int
) -> None:
    """OlderIsTrue finds it; without the bug nothing is found in the same run."""
    scenario, configs = load(FILE.parent / "insiders.yaml")
    faults = replace(scenario.faults, **more)
    if lies == "nobody":
        scenario = replace(scenario, liars=(), liar_count=0, faults=faults)
    elif lies:
        scenario = replace(scenario, liars=(lies,), faults=faults)
    case = draw(scenario, configs, seed)
    with monkeypatch.context() as planted:
        plant(planted)
        found = play(scenario, case).violation
    assert found is not None, "note a seed that finds it"
    assert found.checker == OlderIsTrue.__name__
    assert play(scenario, case).violation is None
