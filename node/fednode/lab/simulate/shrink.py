"""Shrink a case that breaks a promise: drop its faults and hostile nodes in turn."""

from __future__ import annotations

from dataclasses import replace

from fednode.lab.simulate.scenario import CaseEnd, Scenario, ScenarioCase, play


def shrink(scenario: Scenario, failed: CaseEnd, tries: int = 200) -> CaseEnd:
    """Drop faults in turn; return the smallest case found that breaks the same promise."""
    assert failed.violation is not None, "it failed"
    least = failed
    for _ in range(tries):
        smaller = next(
            (
                end
                for case in _simpler(least.case)
                for end in [play(scenario, case)]
                if end.violation and end.violation.checker == failed.violation.checker
            ),
            None,
        )
        if smaller is None:
            return least
        least = smaller
    return least


def _simpler(case: ScenarioCase) -> list[ScenarioCase]:
    """Return the cases that have one fault or hostile node less."""
    simpler = [
        replace(case, faults=case.faults[:at] + case.faults[at + 1 :])
        for at in range(len(case.faults))
    ]
    for name in case.liars:
        honest = {liar_name: lie for liar_name, lie in case.liars.items() if liar_name != name}
        simpler.append(replace(case, liars=honest))
    calmer = [
        replace(case, loss=0.0),
        replace(case, duplicates=0.0),
        replace(case, slow_disk_s=0.0),
        replace(case, skew_s=0.0),
    ]
    return [*simpler, *(calm for calm in calmer if calm != case)]
