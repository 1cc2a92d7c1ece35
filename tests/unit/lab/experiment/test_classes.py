"""Results by class as CSV, beside a count by hand."""

from __future__ import annotations

import csv

from fednode.lab.experiment import classes
from fednode.terminal.formats import csv_table
from tests.unit.lab.experiment.results import classified


def test_a_line_for_each_class_and_each_entry_of_a_confusion_matrix() -> None:
    _, done = classified((1, 2))
    table = list(csv.reader(csv_table(classes.class_lines(done)).splitlines()))
    assert table[1] == ["ours", "1", "", "own", "node-01", "a|b", "4", "0.750000", "1.000000",
                        "0.750000"]  # fmt: skip
    assert table[2][5:] == ["'=c", "4", "1.000000", "0.750000", ""]
    matrix = list(csv.reader(csv_table(classes.confusion_lines(done)).splitlines()))
    assert [int(one[-1]) for one in matrix[1:]] == [3, 1, 4, 2, 2, 4, 1, 3, 4, 4, 4]
    assert matrix[2][4:] == ["node-01", "a|b", "'=c", "1"]
