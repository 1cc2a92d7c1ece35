"""Meshes that grow while their settings change: growing.yaml."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fednode.core.documents import Documents
from fednode.core.gate import TAKEN, Gate
from fednode.core.members.gossip import Gossip
from fednode.lab.commands.simulate import load
from fednode.lab.simulate.scenario import ScenarioCase, draw, play
from fednode.testing.seeds import seeds

FILE = Path(__file__).resolve().parents[2] / "configs" / "sim" / "growing.yaml"
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_a_mesh_that_grows_while_its_settings_change_ends_well(seed: int) -> None:
    scenario, configs = load(FILE)
    assert play(scenario, draw(scenario, configs, seed)).violation is None


@pytest.mark.parametrize("seed", [510782, 511027, 511664])
def test_seeds_that_once_broke_end_well(seed: int) -> None:
    """Members of equal settings know each other through one of other settings; a crash comes
    between the operator's answer and the kernel's."""
    scenario, configs = load(FILE)
    assert play(scenario, draw(scenario, configs, seed)).violation is None


def test_seeds_draw_newcomers_rival_proposals_and_both_kinds_of_liars() -> None:
    scenario, configs = load(FILE)
    cases = [draw(scenario, configs, seed) for seed in range(1, 60)]
    assert all(case.later for case in cases)
    numbers = [[one.number for one in case.documents] for case in cases]
    assert any(len(set(few)) < len(few) for few in numbers), "two proposals of one number"
    lies = {lie for case in cases for lie in case.liars.values()}
    assert lies == {"false-settings", "two-keys", "dates-back", "revokes"}
    late = [case for case in cases if case.documents and _joins_after_a_proposal(case)]
    assert late, "somebody joins when a change is under way"


def _joins_after_a_proposal(case: ScenarioCase) -> bool:
    joins = case.newcomers.joins if case.newcomers else {}
    return max(at for at, _ in joins.values()) > min(one.at for one in case.documents)


def revocations_stay_among_sites_of_equal_settings(patch: Patch) -> None:
    patch.setattr(Gossip, "_ended", lambda self: [])


def leases_stay_among_sites_of_equal_settings(patch: Patch) -> None:
    patch.setattr(Gossip, "_leases", lambda self, but: [])


def newcomers_merge_whatever_comes(patch: Patch) -> None:
    """A node takes a message of a round from a newcomer that runs under other settings."""
    right = Gate._identity

    def identity(self: Gate, message: object) -> object:
        verdict = right(self, message)  # type: ignore[arg-type]
        new = str(getattr(message, "sender", "")).startswith("new")
        return TAKEN if verdict[1] == "settings" and new else verdict

    patch.setattr(Gate, "_identity", identity)


def newcomers_are_told_no_settings(patch: Patch) -> None:
    right = Documents.pass_on

    def pass_on(self: Documents, now: float, peer: str, say: object) -> object:
        return [] if peer.startswith("new") else right(self, now, peer, say)  # type: ignore[arg-type]

    patch.setattr(Documents, "pass_on", pass_on)


@pytest.mark.parametrize(
    ("plant", "seed", "checker"),
    [
        (revocations_stay_among_sites_of_equal_settings, 8, "OneKeyAName"),
        pytest.param(
            leases_stay_among_sites_of_equal_settings, 510782, "OneKeyAName", marks=pytest.mark.slow
        ),
        (newcomers_merge_whatever_comes, 13, "OneDocumentARound"),
        pytest.param(newcomers_are_told_no_settings, 2, "AllEndsWell", marks=pytest.mark.slow),
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
