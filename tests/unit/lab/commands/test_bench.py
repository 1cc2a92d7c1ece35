"""`fednode bench` has a command for each benchmark."""

from __future__ import annotations

from fednode.lab.commands import (
    bench,
    bench_mesh,
    bench_scale,
    bench_sums,
    bench_tuning,
    bench_wire,
)
from tests.command_line import named


def test_its_name_leads_here_and_to_each_benchmark() -> None:
    assert named("bench") is bench.bench
    assert bench.bench.commands == {
        "tuning": bench_tuning.tuning,
        "scale": bench_scale.scale,
        "wire": bench_wire.wire,
        "mesh": bench_mesh.mesh,
        "sums": bench_sums.sums,
    }
