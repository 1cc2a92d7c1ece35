"""`fednode bench wire`: a row for each size, with and without TLS."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from fednode.lab.bench import wire as measured
from fednode.lab.commands import bench_wire
from fednode.lab.commands.bench import bench
from tests.unit.commands.run import Fednode


def test_wire_prints_a_row_for_each_size_with_and_without_tls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "wire.png"
    words = ["bench", "wire", "--kib", "4", "--kib", "2048", "--calls", "2", "--format", "json"]
    fednode = Fednode(capsys)
    assert fednode(*words, "--plot", picture) == 0
    rows = json.loads(fednode.out)["rows"]
    assert [(row["size"], row["tls"]) for row in rows] == [
        (4096, True), (2 << 20, True), (4096, False), (2 << 20, False),
    ]  # fmt: skip
    for row in rows:
        assert set(row) == {one.name for one in fields(measured.WireRow)}
        assert row["calls"] == measured.CALLS_MIN
        assert row["size"] < row["frame"] < row["size"] + 300
        assert row["ratio"] == pytest.approx(row["exchange_ms"] / row["echo_ms"])
    assert picture.stat().st_size > 1000


def test_its_name_leads_here() -> None:
    assert bench.commands["wire"] is bench_wire.wire
