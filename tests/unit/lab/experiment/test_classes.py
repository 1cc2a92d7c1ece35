"""Results by class: means over nodes and then over seeds."""

from __future__ import annotations

import csv

from fednode.lab.experiment import classes
from fednode.lab.experiment.table import rows
from fednode.terminal.formats import csv_table
from tests.unit.lab.experiment.results import classified


def test_classes_are_means_over_nodes_and_then_over_seeds() -> None:
    made, done = classified((1, 2))
    results = classes.results(done)
    lines = classes.markdown(made, rows(made, done), results).splitlines()
    at = lines.index("Sensitivity:")
    assert lines[at + 2 : at + 9] == [
        "| class | test images | ours |",
        "| --- | ---: | ---: |",
        "| seeds |  | 2 |",
        "| rounds |  | 7 |",
        "| a\\|b | 4 | 37.5 |",  # (3 + 2) / 8 and (1 + 0) / 8
        "| =c | 4 | 50.0 |",
        "| mean of 2 classes | 8 | 43.8 |",
    ]
    at = lines.index("AUC:")
    assert lines[at + 6 : at + 9] == [
        *("| a\\|b | 4 | 50.0 |", "| =c | 4 | - |", "| mean of 2 classes | 8 | 50.0 |"),
    ]
    table = list(csv.reader(csv_table(classes.class_lines(results)).splitlines()))
    assert table[1] == ["ours", "1", "", "own", "node-01", "a|b", "4", "0.750000", "1.000000",
                        "0.750000"]  # fmt: skip
    assert table[2][5:] == ["'=c", "4", "1.000000", "0.750000", ""]
    matrix = list(csv.reader(csv_table(classes.confusion_lines(results)).splitlines()))
    assert [int(one[-1]) for one in matrix[1:]] == [3, 1, 4, 2, 2, 4, 1, 3, 4, 4, 4]
    assert matrix[2][4:] == ["node-01", "a|b", "'=c", "1"]
