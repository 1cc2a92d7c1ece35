"""`fednode bench`: all benchmarks."""

from __future__ import annotations

import click

from fednode.lab.commands.bench_mesh import mesh
from fednode.lab.commands.bench_scale import scale
from fednode.lab.commands.bench_sums import sums
from fednode.lab.commands.bench_tuning import tuning
from fednode.lab.commands.bench_wire import wire
from fednode.terminal.groups import Whole


@click.group(cls=Whole)
def bench() -> None:
    """Measure speed on this machine; a reference, if there is one, is measured in the same run."""


for command in (tuning, scale, wire, mesh, sums):
    bench.add_command(command)
