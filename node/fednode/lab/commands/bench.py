"""`fednode bench`: all benchmarks."""

from __future__ import annotations

import click

from fednode.lab.commands.bench_mesh import mesh
from fednode.lab.commands.bench_scale import scale
from fednode.lab.commands.bench_tuning import tuning
from fednode.lab.commands.bench_wire import wire


@click.group()
def bench() -> None:
    """Measure speed on this machine; a reference, if there is one, is measured in the same run."""


for command in (tuning, scale, wire, mesh):
    bench.add_command(command)
