"""What every tracker promises. Subclasses provide `kind` and `read`; see test_trackers.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fednode.lab.track.base import Plain, Run, Tracker

SETTINGS: Mapping[str, Plain] = {
    "tuning.lr": 0.5,
    "policy.name": "zerodfl",
    "rounds.mode": None,
    "guard.on": True,
}


@dataclass(frozen=True, slots=True)
class Kept:
    """What a tracker holds of a run. figures: by name, (step, value) in order. tables: texts."""

    figures: Mapping[str, list[tuple[int, float]]]
    settings: Mapping[str, str]
    group: str
    tables: Mapping[str, str] = field(default_factory=dict)


Read = Callable[[Run], Kept]
"""Read a run back, as a program of others would."""


class TrackerContract:
    """Tests of a tracker; give fixtures `kind`, its class, and `read`."""

    @pytest.fixture
    def run(self, tmp_path: Path) -> Run:
        """Return a run whose name is no plain file name."""
        return Run(name="node 1/x", group="a mesh", folder=tmp_path / "t", settings=SETTINGS)

    def test_figures_settings_and_tables_are_kept(
        self, kind: type[Tracker], read: Read, run: Run, tmp_path: Path
    ) -> None:
        table = tmp_path / "rounds.csv"
        table.write_text("round,own\n1,0.5\n")
        tracker = kind(run)
        tracker.log(1, {"accuracy/own": 0.5, "loss/training": 2.0})
        tracker.log(2, {"accuracy/own": 0.75})
        tracker.table(table)
        tracker.close()
        tracker.close()
        kept = read(run)
        assert kept.figures["accuracy/own"] == [(1, 0.5), (2, 0.75)]
        assert kept.figures["loss/training"] == [(1, 2.0)]
        assert {name: kept.settings[name] for name in SETTINGS} == {
            name: str(value) for name, value in SETTINGS.items()
        }
        assert kept.group == "a mesh"
        assert "round,own" in kept.tables["rounds.csv"]
        assert "1,0.5" in kept.tables["rounds.csv"]

    def test_a_run_of_the_same_name_continues(
        self, kind: type[Tracker], read: Read, run: Run
    ) -> None:
        for step in (1, 2):
            tracker = kind(run)
            tracker.log(step, {"accuracy/own": step / 4})
            tracker.close()
        assert read(run).figures["accuracy/own"] == [(1, 0.25), (2, 0.5)]

    def test_runs_of_a_group_are_kept_apart(
        self, kind: type[Tracker], read: Read, run: Run
    ) -> None:
        both = [run, replace(run, name="node 2")]
        for at, one in enumerate(both):
            tracker = kind(one)
            tracker.log(1, {"accuracy/own": at / 2})
            tracker.close()
        assert [read(one).figures["accuracy/own"] for one in both] == [[(1, 0.0)], [(1, 0.5)]]

    def test_names_of_figures_may_hold_any_letters(
        self, kind: type[Tracker], read: Read, run: Run
    ) -> None:
        tracker = kind(run)
        tracker.log(1, {"accuracy/Real World": 0.5, "accuracy/(b) 50 %, é": 0.25})
        tracker.close()
        values = sorted(one for points in read(run).figures.values() for _, one in points)
        assert values == [0.25, 0.5]

    def test_it_says_where_a_run_is(self, kind: type[Tracker], run: Run) -> None:
        tracker = kind(run)
        assert tracker.where
        tracker.close()
