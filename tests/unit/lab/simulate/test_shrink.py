"""A case that breaks a promise is made smaller while it breaks the same promise."""

from __future__ import annotations

import pytest

from fednode.lab.commands.simulate import load
from fednode.lab.simulate import shrink
from fednode.lab.simulate.check import Violation
from fednode.lab.simulate.listing import MOVES
from fednode.lab.simulate.scenario import CaseEnd, Scenario, ScenarioCase, draw
from tests.simulation.test_listing_runs import FILE as LISTS
from tests.simulation.test_settings_runs import FILE


def test_faults_liars_and_documents_that_do_not_matter_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The case breaks as long as one crash is in it."""
    scenario, configs = load(FILE)
    case = next(
        one
        for one in (draw(scenario, configs, seed) for seed in range(100))
        if one.documents and one.liars and any(fault.kind == "crash" for fault in one.faults)
    )

    def play(_: Scenario, case: ScenarioCase) -> CaseEnd:
        crashes = any(fault.kind == "crash" for fault in case.faults)
        return CaseEnd(case, 0, 0.0, "", Violation("Crashes", "it does") if crashes else None)

    monkeypatch.setattr(shrink, "play", play)
    least = shrink.shrink(scenario, play(scenario, case)).case
    assert [fault.kind for fault in least.faults] == ["crash"]
    assert not least.documents
    assert not least.liars
    assert (least.loss, least.duplicates, least.slow_disk_s, least.skew_s) == (0, 0, 0, 0)


def test_changes_of_peers_yaml_that_do_not_matter_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The case breaks as long as somebody moves."""
    scenario, configs = load(LISTS)

    def play(_: Scenario, case: ScenarioCase) -> CaseEnd:
        assert case.listing is not None
        moves = any(change.kind == MOVES for change in case.listing.changes)
        return CaseEnd(case, 0, 0.0, "", Violation("Moves", "it does") if moves else None)

    ends = (play(scenario, draw(scenario, configs, seed)) for seed in range(100))
    found = next(end for end in ends if end.violation and len(end.case.listing.changes) > 3)  # type: ignore[union-attr]
    monkeypatch.setattr(shrink, "play", play)
    least = shrink.shrink(scenario, found).case
    assert least.listing is not None
    assert [change.kind for change in least.listing.changes] == [MOVES]
