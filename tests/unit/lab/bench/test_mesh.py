"""`fednode bench wire` and `bench mesh`: the smallest runs, and figures counted another way."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from fednode.lab.bench import mesh as bench_mesh
from tests.unit.commands.run import Fednode


@pytest.mark.parametrize("tls", [False, True])
def test_mesh_counts_the_prompts_that_zerodfl_sends(
    tls: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "mesh", "--nodes", "2", "--rounds", "30", "--mode", "sync", "--no-death"]
    words += ["--tls"] if tls else []
    fednode = Fednode(capsys)
    assert fednode(*words, "--format", "json") == 0
    (row,) = json.loads(fednode.out)["rows"]
    assert set(row) == {one.name for one in fields(bench_mesh.MeshRow)}
    assert (row["mode"], row["nodes"], row["tls"]) == ("sync", 2, tls)
    assert row["recovery_s"] is None
    assert row["rounds"] >= 30
    assert row["prompts"] == pytest.approx(2, rel=0.2)  # each node sends to the other, each round
    assert row["control"] >= 0
    assert row["bytes"] > row["prompts"] * bench_mesh.SMALL.bytes
    assert row["round_s"] > 0
