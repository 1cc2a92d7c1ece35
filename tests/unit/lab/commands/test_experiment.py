"""`fednode experiment` as a user sees it: its exit codes and its lines."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from fednode.errors import DataError
from fednode.lab.experiment import run
from fednode.lab.experiment.cells import Cell, Outcome
from fednode.lab.experiment.settings import Experiment
from tests.unit.lab.experiment.test_experiment import start, write

OUTCOME = {"scores": {"photo": {"a": 0.5, "b": 1.0}}, "seconds": 3.0}


def file(place: Path, folder: Path) -> Path:
    """Return an experiment of four cells, in two folders."""
    return write(place / "t.yaml", folder, methods=["local"], vary={"data.shots": [1, 2]})


@pytest.mark.parametrize("wrong", [1, 2])
def test_a_value_whose_cells_fail_gives_exit_code_2_wherever_it_stands(
    tmp_path: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    wrong: int,
) -> None:
    tried = []

    def work(experiment: Experiment, cell: Cell) -> Outcome:
        tried.append(cell)
        if experiment.data.shots == wrong:
            raise DataError("no images.")
        return OUTCOME

    monkeypatch.setattr(run, "_outcome", work)
    code, shown, _ = start(capsys, file(tmp_path, folder), "--out", tmp_path / "out")
    assert (code, len(tried)) == (2, 4)
    assert "local, seed 2: failed: no images." in shown
    assert "local, seed 2: photo 75.0 in 3 s" in shown
    assert len([*(tmp_path / "out").rglob("cells/*")]) == 2


def test_a_command_that_is_ended_says_how_to_go_on(
    tmp_path: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(run, "_outcome", work)
    # A test suite in the background inherits an ignored SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, _, err = start(capsys, file(tmp_path, folder), "--out", tmp_path / "out")
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == 130
    assert re.search(r"0 of \d runs are kept; the same command goes on from there\.", err)
    assert not [*(tmp_path / "out").rglob("cells/*")]
