"""Meshes that grow by leases while sponsors die and lie: newcomers.yaml."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fednode.core.names import Claim, Names
from fednode.lab.commands.simulate import load
from fednode.lab.simulate.scenario import draw, play
from fednode.testing.seeds import seeds

FILE = Path(__file__).resolve().parents[2] / "configs" / "sim" / "newcomers.yaml"
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_newcomers_take_part_whatever_sponsors_say(seed: int) -> None:
    scenario, configs = load(FILE)
    assert play(scenario, draw(scenario, configs, seed)).violation is None


def a_date_proves_something(patch: Patch) -> None:
    """A revoked sponsor's lease counts if it is dated before the run."""
    fault = Names.fault

    def early(self: Names, claim: Claim) -> str:
        return fault(self, claim) if claim.issued else ""

    patch.setattr(Names, "fault", early)


def nothing_stays(patch: Patch) -> None:
    """With a sponsor's key all its leases end."""
    revoke = Names.revoke
    patch.setattr(Names, "revoke", lambda self, id, stay=frozenset(): revoke(self, id))


@pytest.mark.parametrize(
    "plant", [a_date_proves_something, pytest.param(nothing_stays, marks=pytest.mark.slow)]
)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    scenario, configs = load(FILE)
    plant(monkeypatch)
    cases = (draw(scenario, configs, seed) for seed in range(1, 60))
    wanted = "dates-back" if plant is a_date_proves_something else "two-keys"
    lying = [case for case in cases if wanted in case.liars.values()][:6]
    found = next(end for case in lying if (end := play(scenario, case)).violation)
    assert found.violation is not None
    assert found.violation.checker in {"OneKeyAName", "AllEndsWell"}
