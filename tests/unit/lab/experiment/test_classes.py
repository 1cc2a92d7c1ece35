"""Results by class: means over nodes and then over seeds."""

from __future__ import annotations

import csv
from typing import Any

from fednode.lab.experiment import classes
from fednode.lab.experiment.cells import Cell, Done
from fednode.lab.experiment.settings import DataPart, Experiment, MethodSettings, ProtocolSettings
from fednode.lab.experiment.table import rows
from fednode.terminal.formats import csv_table


def counted(nodes: dict[str, list[list[int]]], auc: list[float | None]) -> list[dict[str, Any]]:
    """Return what a cell's file holds of nodes with these confusion matrices."""
    return [
        {
            "nodes": [name],
            "classes": ["a|b", "=c"],
            "auc": auc,
            "confusion": [
                [row, column, images]
                for row, line in enumerate(matrix)
                for column, images in enumerate(line)
                if images
            ],
        }
        for name, matrix in nodes.items()
    ]


def classified(seeds: tuple[int, ...]) -> tuple[Experiment, list[Done]]:
    """Return an in-domain experiment of two nodes; seed 1 is the better one."""
    method = MethodSettings(label="ours", policy={"name": "promptfl"}, rounds=7)
    made = Experiment(
        title="t",
        data=DataPart(path="/nowhere"),
        methods=(method,),
        protocol=ProtocolSettings("base-to-new"),
        seeds=seeds,
    )
    first = {"node-01": [[3, 1], [0, 4]], "node-02": [[2, 2], [0, 4]]}
    second = {"node-01": [[1, 3], [4, 0]], "node-02": [[0, 4], [4, 0]]}
    done = [
        Done(
            Cell(method, seed, "", "k"),
            {
                "scores": {"own": {"node-01": 0.9, "node-02": 0.8}},
                "by_class": {"own": counted(matrices, auc)},
                "seconds": 1.0,
            },
        )
        for seed, matrices, auc in ((1, first, [0.75, None]), (2, second, [0.25, None]))
        if seed in seeds
    ]
    return made, done


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
