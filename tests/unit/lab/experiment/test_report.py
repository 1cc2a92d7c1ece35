"""The report of an experiment: each table names seeds and rounds; tuning that differs is named."""

from __future__ import annotations

import csv
from dataclasses import replace

from fednode.lab.experiment import classes
from fednode.lab.experiment.report import markdown
from fednode.lab.experiment.settings import MethodSettings
from fednode.terminal.options import csv_table
from tests.unit.lab.experiment.results import classified


def test_each_table_names_seeds_rounds_and_test_images() -> None:
    made, done = classified((1, 2))
    text = markdown(made, done, "command")
    lines = text.splitlines()
    assert "seeds 1, 2. Accuracy in percent, mean ± standard deviation over seeds." in text
    assert "| ours | 2 | 7 | - | - | - | 85.0 ± 0.0 |" in lines
    assert "| test images |  |  | - | - | - | 8 |" in lines
    heads = [line for line in lines if line.startswith("| method ")]
    assert len(heads) == 2
    assert all(line.startswith("| method | seeds | rounds | ") for line in heads)
    assert "| ours | 1 of 2 | 7 | " in markdown(made, done[:1], "command")


def test_one_seed_has_no_deviation_over_seeds() -> None:
    text = markdown(*classified((1,)), "command")
    assert "16 shots, fednode-mini, seed 1. Accuracy in percent.\n" in text
    assert "| ours | 1 | 7 | - | - | - | 85.0 |" in text.splitlines()
    assert "±" not in text
    assert "over seeds" not in text


def test_keys_of_tuning_in_which_methods_differ_are_named_with_each_value() -> None:
    """Defaults that a policy brings count, and a method that learns nothing does not."""
    made, done = classified((1,))
    methods = (
        MethodSettings(label="words", policy={"name": "local"}, tuning={"init_words": "a photo"}),
        MethodSettings(label="clip", policy={"name": "fedclip"}),
        MethodSettings(label="zero-shot", policy={"name": "zero-shot"}, tuning={"epochs": 9}),
    )
    text = markdown(replace(made, methods=methods, tuning={"lr": 0.5}), done, "command")
    table = text.partition("Keys of `tuning` in which the methods differ")[2].splitlines()[2:]
    keys, _, *values = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table)
    words, clip = (dict(zip(keys, row, strict=True)) for row in values)
    assert (words["method"], words["init_words"], clip["init_words"]) == (
        *("words", '"a photo"', "null"),
    )
    assert (words["optimizer"], clip["optimizer"]) == ('"sgd"', '"adam"')
    assert not {"lr", "epochs"} & {*keys}
    assert "Keys of `tuning`" not in markdown(replace(made, methods=methods[1:]), done, "command")


def test_a_line_for_each_class_and_each_entry_of_a_confusion_matrix() -> None:
    _, done = classified((1, 2))
    table = list(csv.reader(csv_table(classes.class_lines(done)).splitlines()))
    assert table[1] == ["ours", "1", "", "own", "node-01", "a|b", "4", "0.750000", "1.000000",
                        "0.750000"]  # fmt: skip
    assert table[2][5:] == ["'=c", "4", "1.000000", "0.750000", ""]
    matrix = list(csv.reader(csv_table(classes.confusion_lines(done)).splitlines()))
    assert [int(one[-1]) for one in matrix[1:]] == [3, 1, 4, 2, 2, 4, 1, 3, 4, 4, 4]
    assert matrix[2][4:] == ["node-01", "a|b", "'=c", "1"]
