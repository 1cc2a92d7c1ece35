"""Figures reach a tracker's process; a tracker that fails harms nothing."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fednode.errors import ConfigError
from fednode.lab.track import tracking as module
from fednode.lab.track.base import Run, finite, flat
from fednode.lab.track.names import figures
from fednode.lab.track.tracking import Shipped, Tracking, shipped

FAKE = Shipped("Fake", "fednode.lab.track.fake:FakeTracker", "json")
ROOT = Path(__file__).resolve().parents[4]
LONG_S = 120.0
"""A bound for a test that hangs, not a measurement."""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(name="node-1", group="m", folder=tmp_path, settings={"seed": 1})


class Told:
    """Sentences of a tracking, and a way to wait for one."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []
        self._heard = threading.Condition()

    def say(self, text: str) -> None:
        self._take(self.said, text)

    def warn(self, text: str) -> None:
        self._take(self.warned, text)

    def _take(self, to: list[str], text: str) -> None:
        with self._heard:
            to.append(text)
            self._heard.notify_all()

    def wait(self, there: Callable[[], object]) -> None:
        with self._heard:
            assert self._heard.wait_for(there, LONG_S)


def broken(name: str) -> Shipped:
    return Shipped("Fake", f"tests.unit.lab.track.broken:{name}", "json")


def lines(run: Run) -> list[Any]:
    return [json.loads(one) for one in (run.folder / f"{run.slug}.jsonl").read_text().splitlines()]


def test_a_run_reaches_the_tracker_in_order(run: Run, tmp_path: Path) -> None:
    told, table = Told(), tmp_path / "a.csv"
    table.write_text("x\n")
    tracking = Tracking(FAKE, told.say, told.warn)
    tracking.begin(run)
    for step in range(1, 101):
        tracking.log(step, {"loss": step / 2, "none": math.nan, "much": math.inf, "text": "x"})
    tracking.log(101, {"none": math.nan})
    tracking.table(table)
    tracking.end()
    tracking.close(LONG_S)
    tracking.close(LONG_S)
    expected: list[Any] = [["begin", "node-1", "m", {"seed": 1}]]
    expected += [["log", step, {"loss": step / 2}] for step in range(1, 101)]
    assert lines(run) == [*expected, ["table", "a.csv", "x\n"], ["end"]]
    assert told.said == [f"Fake: {tmp_path / 'node-1.jsonl'}"]
    assert not told.warned


def test_a_run_is_ended_where_the_node_only_closes(run: Run) -> None:
    told = Told()
    tracking = Tracking(FAKE, told.say, told.warn)
    tracking.begin(run)
    tracking.close(LONG_S)
    tracking.log(1, {"late": 1.0})
    assert [one[0] for one in lines(run)] == ["begin", "end"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("NoNetwork", "ConnectionError: no route to tracker.example"),
        ("FullDisk", "SystemExit: no space for step 1"),
        (
            "Missing",
            "AttributeError: module 'tests.unit.lab.track.broken' has no attribute 'Missing'",
        ),
    ],
)
def test_a_tracker_that_fails_is_told_of_once(run: Run, name: str, reason: str) -> None:
    told = Told()
    tracking = Tracking(broken(name), told.say, told.warn)
    for _ in range(3):
        tracking.begin(run)
        for step in (1, 2, 3):
            tracking.log(step, {"loss": 1.0})
        tracking.end()
    tracking.close(LONG_S)
    assert told.warned == [f"Fake does not take figures: {reason}."]


def test_a_tracker_whose_process_dies_is_told_of_once(run: Run) -> None:
    told = Told()
    tracking = Tracking(broken("Dying"), told.say, told.warn)
    tracking.begin(run)
    tracking.log(1, {"loss": 1.0})
    assert tracking._process is not None
    assert tracking._process.wait(LONG_S) == 3
    for step in range(2, 5):
        tracking.log(step, {"loss": 1.0})
    told.wait(lambda: told.warned)
    tracking.close(LONG_S)
    assert told.warned == ["Fake does not take figures: its process ended."]


def test_a_tracker_that_hangs_neither_blocks_nor_outlives_the_node(run: Run) -> None:
    """The queue takes four lines, the pipe some more; a thousand long lines do not fit."""
    told = Told()
    tracking = Tracking(broken("Hanging"), told.say, told.warn, queued_max=4)
    tracking.begin(run)
    told.wait(lambda: told.said)
    for step in range(1000):
        tracking.log(step, {f"{'x' * 200} {at}": 1.0 for at in range(10)})
    told.wait(lambda: told.warned)
    tracking.close(0.2)
    assert tracking._process is not None
    assert tracking._process.returncode == -9
    first, ended, lost = told.warned
    assert first == "Fake is too slow: some figures are not passed on."
    assert ended.startswith(
        "Fake had not taken all figures within 0.2 s after the end: its process"
    )
    assert lost.startswith("Fake was too slow: ")


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for kind in module.TRACKERS:
        absent = Shipped("X", "x:X", "no_such_package")
        monkeypatch.setitem(module.TRACKERS, kind, absent)
        with pytest.raises(ConfigError) as caught:
            shipped(kind)
        assert str(caught.value) == (
            f"The tracker {kind} needs the package no_such_package, which is not installed: run "
            f"pip install 'fednode[{kind}]', or leave the tracker out."
        )
    # W&B makes a folder of this name where it runs; it is no package.
    (tmp_path / "no_such_package").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="is not installed"):
        shipped("wandb")


def test_names_of_figures() -> None:
    metrics = {"loss": 1.0, "validation_loss": 2.0, "own": 0.5, "zero_shot_own": 0.25, "odd": 3.0}
    assert figures(metrics, {"wire_out": 7}) == {
        "loss/training": 1.0,
        "loss/validation": 2.0,
        "accuracy/own": 0.5,
        "zero-shot accuracy/own": 0.25,
        "metrics/odd": 3.0,
        "traffic/wire_out": 7.0,
    }


def test_settings_are_flat_and_figures_finite() -> None:
    tree = {"a": {"b": 1, "c": {}}, "d": [1, 2], "e": None, "f": ("x",)}
    assert flat(tree) == {"a.b": 1, "a.c": "{}", "d": "[1, 2]", "e": None, "f": "('x',)"}
    assert finite({"a": 1, "b": True, "c": math.inf, "d": "1", "e": 0.5}) == {"a": 1.0, "e": 0.5}
