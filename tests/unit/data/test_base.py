"""Settings refuse what lies outside their range, in one sentence with value and limit."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.data.base import DataSettings, PartitionSettings


@pytest.mark.parametrize(
    ("kind", "values", "sentence"),
    [
        (DataSettings, {"shots": -1}, "data.shots is -1"),
        (DataSettings, {"test": 1.0}, "data.test is 1; it must be from 0 to 0.99"),
        (DataSettings, {"validation": -0.1}, "data.validation is -0.1"),
        (
            DataSettings,
            {"window": (5.0, 5.0)},
            r"data.window is \[5.0, 5.0\]; give the value of bl",
        ),
        (DataSettings, {"window": (0.0, float("nan"))}, r"data.window is \[0.0, nan\]"),
        (DataSettings, {"table": "t.csv"}, "data.table is 't.csv' with data.path 'builtin'"),
        (DataSettings, {"table": " ", "path": "x"}, "data.table is ' '"),
        (DataSettings, {"columns": ("a", "b"), "path": "x"}, "there is no data.table"),
        (
            DataSettings,
            {"groups": "(a"},
            r"data.groups is '\(a'; give folder, dicom:PatientID or a",
        ),
        (DataSettings, {"groups": ""}, "it is not empty"),
        (
            DataSettings,
            {"groups": "a", "partition": PartitionSettings("dirichlet", 0, 2)},
            "dirichlet deals out single images",
        ),
        (PartitionSettings, {"count": 0}, "data.partition.count is 0"),
        (PartitionSettings, {"index": -1}, "data.partition.index is -1"),
        (PartitionSettings, {"index": 3, "count": 3}, "index is 3; it must be from 0 to 2"),
        (PartitionSettings, {"alpha": 0.0}, "data.partition.alpha is 0; it must be from 0.001 to"),
        (PartitionSettings, {"alpha": float("nan")}, "data.partition.alpha is nan"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    kind: Any, values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        kind(**values)


def test_edges_of_the_ranges_are_accepted() -> None:
    settings = DataSettings(shots=0, test=0.0, partition=PartitionSettings(index=2, count=3))
    assert settings.partition.index == 2
