"""The report of an experiment: each table names seeds, rounds and test images."""

from __future__ import annotations

from fednode.lab.experiment.report import markdown
from fednode.lab.experiment.table import rows
from tests.unit.lab.experiment.results import classified


def test_each_table_names_seeds_rounds_and_test_images() -> None:
    made, done = classified((1, 2))
    text = markdown(made, rows(made, done), done, "command")
    lines = text.splitlines()
    assert "seeds 1, 2. Accuracy in percent, mean ± standard deviation over seeds." in text
    assert "| ours | 2 | 7 | - | - | - | 85.0 ± 0.0 |" in lines
    assert "| test images |  |  | - | - | - | 8 |" in lines
    heads = [line for line in lines if line.startswith("| method ")]
    assert len(heads) == 3
    assert all(line.startswith("| method | seeds | rounds | ") for line in heads)
    assert "| ours | 1 of 2 | 7 | " in markdown(made, rows(made, done[:1]), done[:1], "command")
