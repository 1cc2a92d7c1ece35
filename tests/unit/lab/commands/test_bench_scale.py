"""`fednode bench scale`: rows as JSON, a table, a plot, and which values are refused."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from fednode.lab.bench.scale import ScaleRow
from fednode.lab.commands import bench_scale
from fednode.lab.commands.bench import bench
from tests.unit.commands.run import Fednode


def test_rows_are_printed_as_json_and_drawn(tmp_path: Path, fednode: Fednode) -> None:
    picture = tmp_path / "scale.png"
    words = ("bench", "scale", "--nodes", "4", "--rounds", "3", "--format", "json")
    assert fednode(*words, "--plot", picture) == 0
    rows = json.loads(fednode.out)["rows"]
    assert [row["policy"] for row in rows] == ["zerodfl", "promptfl", "feddpt"]
    assert all(set(row) == {one.name for one in fields(ScaleRow)} for row in rows)
    assert all((row["nodes"], row["rounds"], row["live"]) == (4, 3, 3) for row in rows)
    assert picture.stat().st_size > 1000


def test_the_table_names_units_and_says_what_is_compared(fednode: Fednode) -> None:
    assert fednode("bench", "scale", "--nodes", "3", "--rounds", "1", "--policy", "zerodfl") == 0
    assert "bytes/s" in fednode.out
    assert "There is no reference" in fednode.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "plan"), "'plan'; give one of zerodfl, promptfl, feddpt"),
        (("--nodes", "2000"), "--nodes is 2,000"),
        (("--nodes", "100", "--policy", "promptfl"), "at most 64 nodes"),
    ],
)
def test_wrong_values_are_named(words: tuple[str, ...], said: str, fednode: Fednode) -> None:
    assert said in fednode.fault("bench", "scale", *words)


def test_its_name_leads_here() -> None:
    assert bench.commands["scale"] is bench_scale.scale
