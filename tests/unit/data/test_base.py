"""Settings refuse what lies outside their range, in one sentence with value and limit."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.data.base import DataSettings, PartitionSettings


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"shots": -1}, "data.shots is -1"),
        ({"test": 1.0}, "data.test is 1; it must be from 0 to 0.99"),
        ({"validation": -0.1}, "data.validation is -0.1"),
        ({"window": (5.0, 5.0)}, r"data.window is \[5.0, 5.0\]; give the value of black and a gr"),
        ({"window": (0.0, float("nan"))}, r"data.window is \[0.0, nan\]"),
    ],
)
def test_data_settings_out_of_range_are_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        DataSettings(**values)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"count": 0}, "data.partition.count is 0"),
        ({"index": -1}, "data.partition.index is -1"),
        ({"index": 3, "count": 3}, "data.partition.index is 3; it must be from 0 to 2"),
        ({"alpha": 0.0}, "data.partition.alpha is 0; it must be from 0.001 to 1e"),
        ({"alpha": float("nan")}, "data.partition.alpha is nan"),
    ],
)
def test_partition_settings_out_of_range_are_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        PartitionSettings(**values)


def test_edges_of_the_ranges_are_accepted() -> None:
    settings = DataSettings(shots=0, test=0.0, partition=PartitionSettings(index=2, count=3))
    assert settings.partition.index == 2
