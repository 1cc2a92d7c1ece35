"""A cell is run once, whoever runs it, and its key names what its outcome depends on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fednode.errors import DataError
from fednode.lab.experiment import claims, run
from fednode.lab.experiment.cells import Job, Outcome
from fednode.lab.experiment.run import Attempt, attempt, cells
from fednode.lab.experiment.settings import DataPart, Experiment, MethodSettings, ProtocolSettings

OUTCOME = {"scores": {"photo": {"n": 0.5}}, "seconds": 1.0}
EXPERIMENT = Experiment(
    title="t",
    data=DataPart(path="builtin"),
    methods=(MethodSettings(label="ours", policy={"name": "promptfl"}),),
    protocol=ProtocolSettings(kind="base-to-new", clients=2),
    seeds=(1,),
)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    (cell,) = cells(EXPERIMENT)
    made = Job(EXPERIMENT, cell, tmp_path)
    made.path.parent.mkdir()
    return made


def test_a_cell_that_was_written_before_the_claim_is_not_run_again(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker wrote it after this command looked, and gave its claim back."""

    def again(*_: object) -> Outcome:
        raise AssertionError("the cell was run twice")

    monkeypatch.setattr(run, "_outcome", again)
    job.path.write_text(json.dumps(OUTCOME))
    assert attempt(job) == Attempt(OUTCOME, fresh=False)
    assert [path.name for path in job.path.parent.iterdir()] == [job.path.name]


def test_a_cell_that_another_worker_holds_is_left_to_it(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_outcome", lambda *_: OUTCOME)
    held = claims.take(job.path)
    assert held is not None
    assert attempt(job) == Attempt()
    held.release()
    assert attempt(job) == Attempt(OUTCOME, fresh=True)
    assert json.loads(job.path.read_text()) == OUTCOME


def test_a_cell_that_fails_has_its_sentence_and_no_file(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Outcome:
        raise DataError("There are no images.")

    monkeypatch.setattr(run, "_outcome", fails)
    assert attempt(job) == Attempt(fault="There are no images.")
    assert list(job.path.parent.iterdir()) == []


def test_the_trace_of_a_defect_in_a_cell_goes_into_a_file(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Outcome:
        raise ZeroDivisionError("by\nnothing")

    monkeypatch.setattr(run, "_outcome", fails)
    found = attempt(job)
    (trace,) = job.path.parent.iterdir()
    assert found == Attempt(
        fault=f"ZeroDivisionError: by nothing (a defect; its trace is in {trace})"
    )
    assert "Traceback" in trace.read_text()
    assert "in fails" in trace.read_text()


def test_a_key_changes_with_what_an_outcome_depends_on_and_with_nothing_else() -> None:
    (method,) = EXPERIMENT.methods

    def key(changed: Experiment) -> str:
        return cells(changed)[0].key

    alike = [
        replace(EXPERIMENT, title="another"),
        replace(EXPERIMENT, seeds=(1, 2)),
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
