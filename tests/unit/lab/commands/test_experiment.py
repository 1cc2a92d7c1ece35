"""`fednode experiment` as a user sees it: its exit codes and its lines."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from fednode.lab.commands import experiment as command
from fednode.lab.experiment.cells import Cell, Done
from fednode.lab.experiment.settings import MethodSettings
from tests.unit.lab.experiment.test_experiment import start, write

OUTCOME = {"scores": {"photo": {"a": 0.5, "b": 1.0}}, "seconds": 3.0}
CELL = Cell(MethodSettings(label="ours", policy={"name": "promptfl"}), 1, "photo", "abc")


@pytest.mark.parametrize("rates", [(1e30, 0.1), (0.1, 1e30)])
def test_a_value_whose_cells_fail_gives_exit_code_2_wherever_it_stands(
    tmp_path: Path,
    folder: Path,
    model: str,
    capsys: pytest.CaptureFixture[str],
    rates: tuple[float, float],
) -> None:
    changed = {
        "methods": [{"label": "local", "policy": "local", "tuning": {"schedule": "constant"}}],
        "seeds": [1],
        "vary": {"tuning.lr": list(rates)},
    }
    file = write(tmp_path / "trial.yaml", folder, **changed)
    code, shown, _ = start(capsys, file, "--set", model, "--out", tmp_path / "out")
    assert "local, seed 1: failed:" in shown
    assert "local, seed 1: art" in shown.lower()
    assert code == 2


def test_a_line_says_what_a_cell_scored_or_why_it_failed() -> None:
    out = io.StringIO()
    with command._View(Console(file=out, width=200), 4) as view:
        view.note(Done(CELL, OUTCOME, fresh=False))
        view.note(Done(CELL, OUTCOME))
        view.note(Done(CELL, {}, "no images"))
    assert out.getvalue().splitlines() == [
        "2/4 ours, seed 1, photo: photo 75.0 in 3 s",
        "3/4 ours, seed 1, photo: failed: no images",
        "1 of 4 runs were there from before.",
    ]
