"""`fednode bench wire` and `bench mesh`: the smallest runs, and figures counted another way."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from fednode.lab.bench import mesh as bench_mesh
from fednode.lab.bench import wire as bench_wire
from fednode.wire import codec
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
        assert set(row) == {one.name for one in fields(bench_wire.Row)}
        assert row["calls"] == bench_wire.CALLS_MIN
        assert row["size"] < row["frame"] < row["size"] + 300
        assert row["ratio"] == pytest.approx(row["exchange_ms"] / row["echo_ms"])
    assert picture.stat().st_size > 1000


def test_what_wire_sends_is_a_message_with_prompts_of_that_size() -> None:
    said = bench_wire.message(4096)
    read = codec.decode(codec.encode(said, "float32"))
    assert read == said
    assert sum(np.asarray(one).nbytes for one in read.tensors.values()) == 4096


@pytest.mark.parametrize("tls", [False, True])
def test_mesh_counts_the_prompts_that_zerodfl_sends(
    tls: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "mesh", "--nodes", "2", "--rounds", "30", "--mode", "sync", "--no-death"]
    words += ["--tls"] if tls else []
    fednode = Fednode(capsys)
    assert fednode(*words, "--format", "json") == 0
    (row,) = json.loads(fednode.out)["rows"]
    assert set(row) == {one.name for one in fields(bench_mesh.Row)}
    assert (row["mode"], row["nodes"], row["tls"]) == ("sync", 2, tls)
    assert row["recovery_s"] is None
    assert row["rounds"] >= 30
    assert row["prompts"] == pytest.approx(2, rel=0.2)  # each node sends to the other, each round
    assert row["control"] >= 0
    assert row["bytes"] > row["prompts"] * bench_mesh.SMALL.bytes
    assert row["round_s"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("wire", "--kib", "99999"), "99999"),
        (("mesh", "--nodes", "1"), "1 is not in the range"),
        (("mesh", "--mode", "quick"), "'quick'"),
    ],
)
def test_wrong_values_are_named(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fednode = Fednode(capsys)
    assert fednode("bench", *words) == 2
    assert said in fednode.err
