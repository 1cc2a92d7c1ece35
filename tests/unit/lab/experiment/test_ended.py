"""Commands that are ended, cells that fail, and the cache of features."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from fednode.errors import DataError
from fednode.lab.experiment import run
from fednode.lab.experiment.cells import Cell, Outcome
from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.run import cells
from tests.unit.lab.experiment.test_experiment import start, write

METHODS = [{"label": "zero-shot", "policy": "zero-shot"}, "local"]
OUTCOME = {"scores": {"photo": {"n": 0.5}}, "seconds": 1.0}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    """Return an experiment of eight cells, in two folders."""
    changed: dict[str, Any] = {"methods": METHODS, "vary": {"data.shots": [1, 2]}, "rounds": 1}
    return write(tmp_path_factory.mktemp("file") / "trial.yaml", folder, **changed)


def done_in(out: Path) -> set[str]:
    return {path.name for path in out.rglob("cells/*")}


def test_a_command_that_is_ended_says_how_to_go_on(
    tmp_path: Path,
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(run, "_outcome", work)
    # A test suite in the background inherits an ignored SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, _, err = start(capsys, file, "--out", tmp_path / "out", "--workers", "1")
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == 130
    assert re.search(r"0 of \d runs are kept; the same command goes on from there\.", err)
    assert done_in(tmp_path / "out") == set()


def test_a_cell_that_fails_is_tried_once(
    tmp_path: Path,
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []

    def work(_: object, cell: Cell) -> Outcome:
        tried.append(cell)
        raise DataError("no images.")

    monkeypatch.setattr(run, "_outcome", work)
    code, shown, _ = start(capsys, file, "--out", tmp_path / "out", "--workers", "1")
    assert (code, len(tried)) == (2, 8)
    assert "8/8 local, seed 2: failed: no images." in shown
    assert done_in(tmp_path / "out") == set()


def test_cells_do_not_depend_on_the_cache(
    tmp_path: Path, file: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [one.file for one in cells(load_experiment(file))]
    own = f"cache.folder={tmp_path / 'cache'}"
    assert [one.file for one in cells(load_experiment(file, flags=[own]))] == before
    words = (file, "--set", model, "--set", own, "--out", tmp_path / "out", "--workers", "1")
    assert start(capsys, *words)[0] == 0
    assert (tmp_path / "cache/features.db").is_file()
