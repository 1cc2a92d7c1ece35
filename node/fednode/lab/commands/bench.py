"""`fednode bench`: all benchmarks; those that need real nodes are defined here."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Final

import click

from fednode.lab.bench.command_tuning import bench
from fednode.lab.bench.output import Column, Panel, draw, output_options, show

__all__ = ["bench"]

KIB: Final = (4, 64, 1024, 4096, 32768)
WIRE_COLUMNS: Final = (
    Column("size", "prompts", "bytes"),
    Column("tls", "TLS"),
    Column("raw_ms", "raw", "ms"),
    Column("echo_ms", "echo", "ms"),
    Column("exchange_ms", "exchange", "ms"),
    Column("exchange_p99_ms", "99 %", "ms"),
    Column("encode_ms", "encode", "ms"),
    Column("decode_ms", "decode", "ms"),
    Column("ratio", "of", "echo"),
    Column("raw_mb_s", "raw", "MB/s"),
    Column("exchange_mb_s", "exch.", "MB/s"),
)
WIRE_NOTE: Final = (
    "The reference is echo: the same bytes through fednode's transport, answered at once. raw\n"
    "is grpc.aio alone, with gRPC's own TLS. Times are medians; both ends run in this process,\n"
    "and the three ways take turns. exchange - echo is the codec (encode, decode) and trust.\n"
    "echo - raw is fednode's limits and, with TLS, that TLS ends outside gRPC: each byte passes\n"
    "a socket more on both sides."
)
MODES: Final = ("async", "sync")
MESH_COLUMNS: Final = (
    Column("mode", "mode"),
    Column("nodes", "nodes"),
    Column("tls", "TLS"),
    Column("rounds", "rounds"),
    Column("round_s", "round", "s"),
    Column("prompts", "prompts", "messages"),
    Column("control", "control", "messages"),
    Column("bytes", "traffic", "bytes"),
    Column("recovery_s", "recovery", "s"),
    Column("tuning_recovery_s", "tuning", "s"),
)
MESH_NOTE: Final = (
    "Messages and bytes are of all nodes, a round; control is all but prompts. recovery is the\n"
    "time from `kill -9` of a node to the second round that all others adopt after it, with at\n"
    "least 0.1 s between rounds. tuning is the time to the next round after a node is killed\n"
    "while it tunes. docs/comparison.md shows the same figures of other systems."
)


@bench.command()
@click.option(
    "--kib",
    type=click.IntRange(1, 32768),
    multiple=True,
    help="Size of the prompts in KiB; may be repeated (4 to 32768).",
)
@click.option(
    "--calls",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Calls of each way; fewer for large sizes, at least 5.",
)
@output_options
def wire(kib: tuple[int, ...], calls: int, plot: Path | None, form: str) -> None:
    """Time an exchange of prompts on loopback, with TLS and without.

    An echo through the same transport is the reference, and gRPC's own echo stands beside it.
    """
    from fednode.lab.bench.wire import Row, measure

    rows: list[Row] = []
    for tls in (True, False):
        for one in kib or KIB:
            click.echo(f"{one} KiB, {'TLS' if tls else 'plain'}", err=True)
            rows.append(asyncio.run(measure(one << 10, tls, calls)))
    title = "One exchange on loopback"
    show(form, title, rows, WIRE_COLUMNS, WIRE_NOTE)
    if plot:
        panels = []
        for tls in (True, False):
            found = [row for row in rows if row.tls is tls]
            ways = ("raw", "echo", "exchange")
            lines = {
                way: [(row.size / 1024, getattr(row, f"{way}_ms")) for row in found] for way in ways
            }
            panels.append(Panel(f"median, ms, {'TLS' if tls else 'plain'}", "KiB", lines))
        draw(panels, title, plot)


@bench.command()
@click.option(
    "--nodes", type=click.IntRange(2, 64), multiple=True, help="Daemons; may be repeated (4)."
)
@click.option(
    "--mode", type=click.Choice(MODES), multiple=True, help="Of rounds; may be repeated (both)."
)
@click.option(
    "--rounds", type=click.IntRange(min=2), default=200, show_default=True, help="Of each node."
)
@click.option("--tls", is_flag=True, help="Give every node a key; mutual TLS between them.")
@click.option("--death/--no-death", default=True, show_default=True, help="Measure recovery, too.")
@output_options
def mesh(
    nodes: tuple[int, ...],
    mode: tuple[str, ...],
    rounds: int,
    tls: bool,
    death: bool,
    plot: Path | None,
    form: str,
) -> None:
    """Measure a local mesh of daemons that train nothing: pace, traffic and recovery.

    The learner solves its task in closed form, so a round costs only what fednode itself does.
    """
    from fednode.lab.bench.mesh import Row, measure

    rows: list[Row] = []
    for one in mode or MODES:
        for count in nodes or (4,):
            click.echo(f"{one}, {count} nodes", err=True)
            with tempfile.TemporaryDirectory(prefix="fednode-bench-") as folder:
                rows.append(asyncio.run(measure(Path(folder), one, count, rounds, tls, death)))
    title = "Daemons on this machine, closed-form learner"
    show(form, title, rows, MESH_COLUMNS, MESH_NOTE)
    if plot:
        keys = {"round_s": "s a round", "control": "control messages a round", "bytes": "bytes"}
        panels = [
            Panel(
                shown,
                "nodes",
                {
                    one: [(row.nodes, getattr(row, key)) for row in rows if row.mode == one]
                    for one in mode or MODES
                },
            )
            for key, shown in keys.items()
        ]
        draw(panels, title, plot)
