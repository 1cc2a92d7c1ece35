"""A cell is run once, and its key names what its outcome depends on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fednode.errors import DataError
from fednode.lab.experiment import run
from fednode.lab.experiment.cells import Done, Outcome
from fednode.lab.experiment.executors import opened
from fednode.lab.experiment.run import cells, run_all
from fednode.lab.experiment.settings import Experiment, MethodSettings
from fednode.learn.settings import CacheSettings
from tests.unit.lab.experiment.results import trial

OUTCOME = {"scores": {"photo": {"n": 0.5}}, "seconds": 1.0}
EXPERIMENT = trial(
    MethodSettings(label="ours", policy={"name": "promptfl"}),
    data={"path": "builtin"},
    protocol={"kind": "base-to-new", "clients": 2},
)


(CELL,) = cells(EXPERIMENT)


def done(folder: Path) -> Done:
    with opened(1) as pool:
        return run_all(EXPERIMENT, folder, pool, lambda _: None)[0]


def test_a_cell_that_has_a_file_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_outcome", lambda *_: OUTCOME)
    assert done(tmp_path) == Done(CELL, OUTCOME)
    assert json.loads(CELL.path(tmp_path).read_text()) == OUTCOME
    assert done(tmp_path) == Done(CELL, OUTCOME, fresh=False)
    CELL.path(tmp_path).write_text('{"scores"')  # torn by a crash of the machine
    assert done(tmp_path) == Done(CELL, OUTCOME)


def test_a_cell_that_fails_has_its_sentence_and_a_defect_its_trace_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[Exception] = [ZeroDivisionError("by\nnothing"), DataError("There are no images.")]

    def fails(*_: object) -> Outcome:
        raise faults.pop()

    monkeypatch.setattr(run, "_outcome", fails)
    assert done(tmp_path) == Done(CELL, {}, "There are no images.")
    assert list((tmp_path / "cells").iterdir()) == []
    found = done(tmp_path).fault
    (trace,) = (tmp_path / "cells").iterdir()
    assert found == f"ZeroDivisionError: by nothing (a defect; its trace is in {trace})"
    assert "Traceback" in trace.read_text()
    assert "in fails" in trace.read_text()


def test_a_key_changes_with_what_an_outcome_depends_on_and_with_nothing_else() -> None:
    (method,) = EXPERIMENT.methods

    def key(changed: Experiment) -> str:
        return cells(changed)[0].key

    alike = [
        replace(EXPERIMENT, title="another"),
        replace(EXPERIMENT, seeds=(1, 2)),
        replace(EXPERIMENT, cache=CacheSettings(folder="elsewhere")),
        replace(EXPERIMENT, methods=(replace(method, label="another"),)),
        replace(EXPERIMENT, methods=(replace(method, paper={"new": 1.0}),)),
    ]
    other = [
        replace(EXPERIMENT, seeds=(2,)),
        replace(EXPERIMENT, rounds=7),
        replace(EXPERIMENT, tuning={"lr": 0.5}),
        replace(EXPERIMENT, methods=(replace(method, guard={"keep_best": True}),)),
        replace(EXPERIMENT, methods=(replace(method, liars=1),)),
        replace(EXPERIMENT, data=replace(EXPERIMENT.data, shots=1)),
    ]
    assert {key(one) for one in alike} == {key(EXPERIMENT)}
    assert len({key(one) for one in [EXPERIMENT, *other]}) == 1 + len(other)
