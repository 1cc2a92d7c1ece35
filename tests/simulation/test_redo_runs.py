"""Meshes whose nodes ran their rounds alone and begin them again, under faults: redo.yaml."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fednode.core.redo import Redo
from fednode.lab.commands.simulate import load
from fednode.lab.simulate import judge, moves
from fednode.lab.simulate.check import Violation
from fednode.lab.simulate.scenario import draw, play
from tests.simulation.test_redo import PROMPTFL, alone, mesh, passed

FILE = Path(__file__).resolve().parents[2] / "configs" / "sim" / "redo.yaml"
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seed", [1, 79, 173, 1090])
def test_nodes_that_ran_alone_begin_again_whatever_fails(seed: int, monkeypatch: Patch) -> None:
    begun = list[bool]()

    def begins(*given: object) -> bool:
        begun.append(moves.begins_again(*given))  # type: ignore[arg-type]
        return begun[-1]

    monkeypatch.setattr("fednode.lab.simulate.checkers.begins_again", begins)
    scenario, configs = load(FILE)
    assert play(scenario, draw(scenario, configs, seed)).violation is None
    assert True in begun


def test_the_judge_sees_who_waits_and_who_differs() -> None:
    world = alone(mesh(PROMPTFL, redo="ab"))
    assert not judge.well(world, "abc")
    with pytest.raises(Violation, match="ended with different prompts"):
        judge.agreed(world)
    passed(world)
    assert "a is finished (idle) in round 6, wants to begin again (c (" in judge.unwell(world, "a")
    assert not judge.well(world, "abc")
    world.command("c", "redo")
    passed(world)
    assert judge.well(world, "abc")
    judge.agreed(world)


def nobody_begins_again(patch: Patch) -> None:
    patch.setattr(Redo, "begins", lambda *_: False)


def merged_prompts_are_given_up(patch: Patch) -> None:
    patch.setattr(Redo, "wanted", property(lambda self: self.context.rounds.redo and not self.done))


@pytest.mark.parametrize(
    ("plant", "found_by"),
    [(nobody_begins_again, "AllEndsWell"), (merged_prompts_are_given_up, "RoundsGoForward")],
)
def test_a_planted_bug_is_found(
    plant: Callable[[Patch], None], found_by: str, monkeypatch: Patch
) -> None:
    scenario, configs = load(FILE)
    plant(monkeypatch)
    found = (play(scenario, draw(scenario, configs, seed)).violation for seed in range(100))
    first = next(filter(None, found))
    print(first)
    assert first.checker == found_by
