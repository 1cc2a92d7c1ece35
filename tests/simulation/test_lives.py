"""Bugs in what a node says and does of its own life: the checker LivesAreTrue finds each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fednode.core.events import Effect
from fednode.core.lives import Lives
from fednode.core.types import Mark
from fednode.lab.commands.simulate import load
from fednode.lab.simulate.lives import LivesAreTrue
from fednode.lab.simulate.scenario import draw, play
from tests.simulation.test_planted_bugs import FILE

Plant = Callable[[pytest.MonkeyPatch], None]


def any_word_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lives, "_by_most", lambda self: [*self._words.values()][-1])


def any_word_is_believed_later(patch: pytest.MonkeyPatch) -> None:
    """Only after a few releases: what the node released since its start is no loss."""
    right = Lives._by_most

    def by_most(self: Lives) -> Mark | None:
        later = self.released > self._base + 2
        return [*self._words.values()][-1] if later else right(self)

    patch.setattr(Lives, "_by_most", by_most)


def the_silent_speak_on(patch: pytest.MonkeyPatch) -> None:
    right = Lives.counted

    def counted(self: Lives, effects: Sequence[Effect]) -> list[Effect]:
        held, self.undecided = self.undecided, ""
        found = right(self, effects)
        self.undecided = held
        return found

    patch.setattr(Lives, "counted", counted)


def a_restart_forgets_that_nobody_decided(patch: pytest.MonkeyPatch) -> None:
    right = Lives.of.__func__  # type: ignore[attr-defined]

    def of(kind: type[Lives], *given: Any) -> Lives:
        context, members, held, past, prove = given
        made: Lives = right(kind, context, members, held, replace(past, undecided=""), prove)
        return made

    patch.setattr(Lives, "of", classmethod(of))


@pytest.mark.parametrize(
    ("plant", "lies", "more", "seed"),
    [
        (any_word_is_believed, "false-life", {}, 1),
        (any_word_is_believed_later, "false-life", {}, 1),
        (the_silent_speak_on, "", {}, 2),
        (a_restart_forgets_that_nobody_decided, "nobody", {"crashes": 6, "backups": 4}, 19),
    ],
)
def test_a_bug_of_a_nodes_life_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, lies: str, more: Mapping[str, int], seed: int
) -> None:
    """LivesAreTrue finds it; without the bug nothing is found in the same run."""
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
    assert found.checker == LivesAreTrue.__name__
    assert play(scenario, case).violation is None
