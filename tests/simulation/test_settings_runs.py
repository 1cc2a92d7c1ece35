"""Meshes whose settings change under faults, refusals and lies: settings.yaml."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fednode.core.documents import Documents, order
from fednode.core.gate import TAKEN, Gate
from fednode.lab.commands.simulate import load
from fednode.lab.simulate.scenario import draw, play
from fednode.testing.seeds import seeds

FILE = Path(__file__).resolve().parents[2] / "configs" / "sim" / "settings.yaml"
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seed", seeds(2, 60))
def test_a_mesh_whose_settings_change_ends_well_whatever_fails(seed: int) -> None:
    scenario, configs = load(FILE)
    assert play(scenario, draw(scenario, configs, seed)).violation is None


def messages_of_other_settings_are_merged(patch: Patch) -> None:
    """A node takes a message of a round from a sender that will have its settings."""
    right = Gate._identity

    def identity(self: Gate, message: object) -> object:
        verdict = right(self, message)  # type: ignore[arg-type]
        return TAKEN if verdict[1] == "settings" else verdict

    patch.setattr(Gate, "_identity", identity)


def nobody_asks_the_operator(patch: Patch) -> None:
    patch.setattr(
        Documents, "next", property(lambda self: max(self.held.values(), key=order, default=None))
    )


def documents_are_told_once_and_may_be_lost(patch: Patch) -> None:
    right = Documents.pass_on

    def pass_on(self: Documents, now: float, peer: str, say: object) -> object:
        return [] if peer in self._passed else right(self, now, peer, say)  # type: ignore[arg-type]

    patch.setattr(Documents, "pass_on", pass_on)


@pytest.mark.parametrize(
    ("plant", "seed", "checker"),
    [
        (messages_of_other_settings_are_merged, 1, "OneDocumentARound"),
        (nobody_asks_the_operator, 1, "OneDocumentARound"),
        (documents_are_told_once_and_may_be_lost, 15, "AllEndsWell"),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[Patch], None], seed: int, checker: str, monkeypatch: Patch
) -> None:
    scenario, configs = load(FILE)
    plant(monkeypatch)
    broken = play(scenario, draw(scenario, configs, seed)).violation
    assert broken is not None
    assert broken.checker == checker
