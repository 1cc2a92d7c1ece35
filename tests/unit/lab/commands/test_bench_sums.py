"""`fednode bench sums` prints a row for each number of classes and each width."""

from __future__ import annotations

import json

from click.testing import CliRunner

from fednode.lab.commands.bench_sums import sums


def test_a_row_for_each_number_of_classes_and_each_width() -> None:
    words = ["--classes", "2", "--classes", "3", "--width", "4", "--format", "json"]
    ran = CliRunner().invoke(sums, words, catch_exceptions=False)
    rows = json.loads(ran.stdout)
    found = rows["rows"] if isinstance(rows, dict) else rows
    assert [(row["classes"], row["width"]) for row in found] == [(2, 4), (3, 4)]
