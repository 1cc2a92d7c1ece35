"""A case that breaks a promise is made smaller while it breaks the same promise."""

from __future__ import annotations

import pytest

from fednode.lab.commands.simulate import load
from fednode.lab.simulate import shrink
from fednode.lab.simulate.check import Violation
from fednode.lab.simulate.scenario import CaseEnd, Scenario, ScenarioCase, draw
from tests.simulation.test_planted_bugs import FILE


def test_faults_and_liars_that_do_not_matter_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The case breaks as long as one crash is in it."""
    scenario, configs = load(FILE)
    case = next(
        one
        for one in (draw(scenario, configs, seed) for seed in range(100))
        if one.liars and any(fault.kind == "crash" for fault in one.faults)
    )

    def play(_: Scenario, case: ScenarioCase) -> CaseEnd:
        crashes = any(fault.kind == "crash" for fault in case.faults)
        return CaseEnd(case, 0, 0.0, "", Violation("Crashes", "it does") if crashes else None)

    monkeypatch.setattr(shrink, "play", play)
    least = shrink.shrink(scenario, play(scenario, case)).case
    assert [fault.kind for fault in least.faults] == ["crash"]
    assert not least.liars
    assert (least.loss, least.duplicates, least.slow_disk_s, least.skew_s) == (0, 0, 0, 0)
