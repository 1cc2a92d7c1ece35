"""`fednode bench mesh`: pace, traffic and recovery of real daemons that train nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import click
import uvloop

from fednode.lab.bench.output import Column, Panel, draw, output_options, show

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


@click.command()
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
    from fednode.lab.bench.mesh import MeshRow, measure

    rows: list[MeshRow] = []
    for kind in mode or MODES:
        for count in nodes or (4,):
            click.echo(f"{kind}, {count} nodes", err=True)
            with tempfile.TemporaryDirectory(prefix="fednode-bench-") as folder:
                rows.append(uvloop.run(measure(Path(folder), kind, count, rounds, tls, death)))
    title = "Daemons on this machine, closed-form learner"
    show(form, title, rows, MESH_COLUMNS, MESH_NOTE)
    if plot:
        keys = {"round_s": "s a round", "control": "control messages a round", "bytes": "bytes"}
        panels = [
            Panel(
                shown,
                "nodes",
                {
                    kind: [(row.nodes, getattr(row, key)) for row in rows if row.mode == kind]
                    for kind in mode or MODES
                },
            )
            for key, shown in keys.items()
        ]
        draw(panels, title, plot)
