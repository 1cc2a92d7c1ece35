"""Finished cells with results by class, made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fednode.lab.experiment.cells import Cell, Done
from fednode.lab.experiment.settings import DataPart, Experiment, MethodSettings, ProtocolSettings

NO_KEYS: Mapping[str, Any] = {}


def trial(
    *methods: MethodSettings,
    data: Mapping[str, Any] = NO_KEYS,
    protocol: Mapping[str, Any] = NO_KEYS,
    seeds: tuple[int, ...] = (1,),
    **more: Any,
) -> Experiment:
    """Return an experiment; data, protocol: the keys of these sections."""
    parts = {"path": "/nowhere", **data}
    return Experiment(
        title="t",
        data=DataPart(**parts),
        methods=methods,
        protocol=ProtocolSettings(**protocol),
        seeds=seeds,
        **more,
    )


def counted(nodes: dict[str, list[list[int]]], auc: list[float | None]) -> dict[str, Any]:
    """Return what a cell's file holds of nodes with these confusion matrices."""
    return {
        name: {
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
    }


def classified(seeds: tuple[int, ...]) -> tuple[Experiment, list[Done]]:
    """Return an experiment of two nodes; seed 1 is the better one."""
    method = MethodSettings(label="ours", policy={"name": "promptfl"}, rounds=7)
    made = trial(method, protocol={"kind": "base-to-new"}, seeds=seeds)
    first = {"node-01": [[3, 1], [0, 4]], "node-02": [[2, 2], [0, 4]]}
    second = {"node-01": [[1, 3], [4, 0]], "node-02": [[0, 4], [4, 0]]}
    done = [
        Done(
            Cell(method, seed, "", "k"),
            {
                "scores": {"own": {"node-01": 0.9, "node-02": 0.8}},
                "by_node": {"own": counted(matrices, auc)},
                "seconds": 1.0,
            },
        )
        for seed, matrices, auc in ((1, first, [0.75, None]), (2, second, [0.25, None]))
        if seed in seeds
    ]
    return made, done
