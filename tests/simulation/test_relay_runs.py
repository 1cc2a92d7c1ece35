"""Meshes behind relays, under faults of relays and firewalls, with hostile relays: relays.yaml."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fednode.lab.commands.simulate import load
from fednode.lab.simulate.scenario import draw, play
from fednode.sim.relays import Relays
from fednode.testing.seeds import seeds

FILE = Path(__file__).resolve().parents[2] / "configs" / "sim" / "relays.yaml"
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seed", seeds(2, 60))
def test_a_mesh_behind_relays_ends_well_whatever_fails(seed: int) -> None:
    scenario, configs = load(FILE)
    assert play(scenario, draw(scenario, configs, seed)).violation is None


def streams_are_kept_after_a_relay_is_lost(patch: Patch) -> None:
    patch.setattr(Relays, "_give_up", lambda *_: None)


def nobody_compares_who_answers(patch: Patch) -> None:
    """A caller takes whom the relay connects it with for the node that it called."""
    patch.setattr(Relays, "_refused", lambda *_: False)


@pytest.mark.parametrize(
    ("plant", "first"),
    [(streams_are_kept_after_a_relay_is_lost, 8), (nobody_compares_who_answers, 15)],
)
def test_a_planted_bug_is_found(
    plant: Callable[[Patch], None], first: int, monkeypatch: Patch
) -> None:
    scenario, configs = load(FILE)
    plant(monkeypatch)
    found = (
        play(scenario, draw(scenario, configs, seed)).violation for seed in range(first, first + 20)
    )
    assert next(filter(None, found)).checker in {"AllAgree", "AllEndsWell", "NobodyStaysDead"}
