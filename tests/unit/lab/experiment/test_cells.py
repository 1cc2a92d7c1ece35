"""Names and places of cells."""

from __future__ import annotations

from pathlib import Path

from fednode.lab.experiment.cells import Cell, Job
from fednode.lab.experiment.settings import DataPart, Experiment, MethodSettings

METHOD = MethodSettings(label="ZeroDFL, 2 rows", policy={"name": "zerodfl"})


def test_a_cell_is_named_by_its_method_seed_domain_and_key() -> None:
    cell = Cell(METHOD, 3, "photo", "0123456789ab")
    assert cell.file == "zerodfl--2-rows_seed-3_photo_0123456789ab.json"
    assert cell.title == "ZeroDFL, 2 rows, seed 3, photo"
    whole = Cell(METHOD, 3, "", "0123456789ab")
    assert whole.file == "zerodfl--2-rows_seed-3_0123456789ab.json"
    assert whole.title == "ZeroDFL, 2 rows, seed 3"


def test_a_job_s_file_lies_in_the_experiment_s_folder() -> None:
    experiment = Experiment(title="t", data=DataPart(path="x"), methods=(METHOD,))
    cell = Cell(METHOD, 1, "", "abc")
    assert Job(experiment, cell, Path("out")).path == Path("out/cells") / cell.file
