"""`fednode bench scale`: what a mesh of more and more nodes costs, in the simulator."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from fednode.errors import ConfigError
from fednode.lab.bench.output import Column, Panel, draw, output_options, show

if TYPE_CHECKING:
    from fednode.lab.bench.scale import ScaleRow

NODES: Final = (8, 16, 32, 64, 125, 250, 500, 1000)
COLUMNS: Final = (
    Column("policy", "policy"),
    Column("nodes", "nodes"),
    Column("seconds", "time", "s"),
    Column("cpu_s", "CPU", "s"),
    Column("consensus", "consensus", "distance"),
    Column("prompt_bytes", "prompts", "bytes"),
    Column("greetings", "greetings", "at start"),
    Column("watch_messages", "watching", "sends/s"),
    Column("watch_bytes", "watching", "bytes/s"),
    Column("list_bytes", "lists", "bytes/s"),
    Column("hello_bytes", "hellos", "bytes/s"),
)
NOTE: Final = (
    "prompts: what a node sends in a round. greetings: hellos of a node in the first ten\n"
    "virtual seconds. watching: what a node sends for membership in a virtual second after\n"
    "that; lists and hellos are parts of it. Until the rounds should be over, every two\n"
    "seconds a node of the mesh crashes (with --churn: each node so many times a minute), and\n"
    "comes back four seconds later. There is no reference: compare the rows. time and CPU are\n"
    "this machine's; all else repeats exactly with the same seed."
)


@click.command()
@click.option(
    "--nodes",
    type=click.IntRange(min=2),
    multiple=True,
    help="Number of nodes; may be repeated (8 to 1000).",
)
@click.option(
    "--rounds", type=click.IntRange(1, 10_000), default=500, show_default=True, help="Of each node."
)
@click.option(
    "--policy", multiple=True, help="zerodfl, promptfl or feddpt; may be repeated (all three)."
)
@click.option(
    "--churn",
    type=click.FloatRange(0, 4, min_open=True),
    help="Crashes a node and minute, for 30 virtual seconds at least; without it, a node of the "
    "mesh crashes every two seconds.",
)
@click.option("--seed", default=1, show_default=True, help="Of crashes, delays and draws.")
@output_options
def scale(
    nodes: tuple[int, ...],
    rounds: int,
    policy: tuple[str, ...],
    churn: float | None,
    seed: int,
    plot: Path | None,
    form: str,
) -> None:
    """Run meshes of more and more nodes in the simulator, with crashes.

    Nothing is trained: the learner solves its task in closed form. So all time is the protocol's
    and the simulator's. ZeroDFL runs with up to 1,000 nodes. promptfl and feddpt send to all
    others, so they run with up to 64 nodes, for at most 50 rounds.
    """
    from fednode.lab.bench import scale as sim

    sizes = nodes or NODES
    unknown = sorted(set(policy) - set(sim.KINDS))
    if unknown:
        names = ", ".join(sim.KINDS)
        raise ConfigError(f"--policy is {unknown[0]!r}; give one of {names}.")
    if max(sizes) > sim.NODES_MAX:
        raise ConfigError(
            f"--nodes is {max(sizes):,}; a node knows about a thousand members, so give at most "
            f"{sim.NODES_MAX:,}."
        )
    chosen = policy or tuple(sim.KINDS)
    runs = [(kind, size) for kind in chosen for size in sizes if size <= sim.KINDS[kind].most]
    if not runs:
        raise ConfigError(
            f"--nodes is {min(sizes)}; {', '.join(chosen)} runs with at most "
            f"{max(sim.KINDS[kind].most for kind in chosen)} nodes here."
        )
    rows: list[ScaleRow] = []
    for kind, size in runs:
        click.echo(f"{kind}, {size:,} nodes", err=True)
        tell = partial(click.echo, err=True)
        rows.append(sim.measure(kind, size, rounds, seed, tell, churn))
    title = f"Simulated meshes, {rounds} rounds (all-to-all: 50 at most), with crashes"
    show(form, title, rows, COLUMNS, NOTE)
    if plot:
        draw(_panels(rows), title, plot)


def _panels(rows: list[ScaleRow]) -> list[Panel]:
    panels = []
    for key, title in (
        ("watch_bytes", "membership, bytes/s a node"),
        ("prompt_bytes", "prompts, bytes a node and round"),
        ("consensus", "consensus distance"),
        ("cpu_s", "CPU seconds of the run"),
    ):
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if getattr(row, key) > 0:  # no logarithm of 0: all nodes hold the same prompts
                lines.setdefault(row.policy, []).append((row.nodes, getattr(row, key)))
        panels.append(Panel(title, "nodes", lines))
    return panels
