"""The report of an experiment: each table names seeds and rounds; tuning that differs is named."""

from __future__ import annotations

from dataclasses import replace

from fednode.lab.experiment.report import markdown
from fednode.lab.experiment.settings import MethodSettings
from tests.unit.lab.experiment.results import classified


def test_each_table_names_seeds_rounds_and_test_images() -> None:
    made, done = classified((1, 2))
    text = markdown(made, done, "command")
    lines = text.splitlines()
    assert "seeds 1, 2. Accuracy in percent, mean ± standard deviation over seeds." in text
    assert "| ours | 2 | 7 | - | - | - | 85.0 ± 0.0 |" in lines
    assert "| test images |  |  | - | - | - | 8 |" in lines
    heads = [line for line in lines if line.startswith("| method ")]
    assert len(heads) == 3
    assert all(line.startswith("| method | seeds | rounds | ") for line in heads)
    assert "| ours | 1 of 2 | 7 | " in markdown(made, done[:1], "command")


def test_one_seed_has_no_deviation_over_seeds() -> None:
    text = markdown(*classified((1,)), "command")
    assert "seed 1. Accuracy in percent.\n" in text
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
