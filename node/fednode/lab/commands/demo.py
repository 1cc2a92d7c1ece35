"""`fednode demo`: the command line of the demo."""

from __future__ import annotations

from pathlib import Path

import click
import uvloop
from rich.console import Console

from fednode.lab.demo.demo import CONFIG, NODES, OUT, SEEDS, DemoOptions, run
from fednode.observe.client import Client
from fednode.terminal.paths import PATH


def _seeds(ctx: click.Context, param: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(seed) for seed in text.split(","))
    except ValueError:
        raise click.BadParameter(
            f"'{text}' is no list of whole numbers: write them as 1,2,3."
        ) from None


@click.command()
@click.option(
    "--seeds",
    default=",".join(map(str, SEEDS)),
    show_default=True,
    callback=_seeds,
    help="Runs of each method, one for each seed.",
)
@click.option("--rounds", type=int, help="Rounds of each run [the configuration's].")
@click.option("--quick", is_flag=True, help="One seed and few rounds: does it run at all?")
@click.option("--keep", is_flag=True, help="Keep state and logs of all daemons.")
@click.option("--config", type=PATH, default=CONFIG, help="node.yaml of every node.")
@click.option("--set", "flags", multiple=True, metavar="KEY=VALUE", help="For every node.")
@click.option("--nodes", default=NODES, show_default=True, help="Daemons of each run.")
@click.option("--out", type=PATH, default=OUT, show_default=True, help="Where the report goes.")
def demo(
    seeds: tuple[int, ...],
    rounds: int | None,
    quick: bool,
    keep: bool,
    config: Path,
    flags: tuple[str, ...],
    nodes: int,
    out: Path,
) -> int:
    """Run ZeroDFL and its control on the built-in images, and print what it brought.

    Five daemons with disjoint classes exchange prompts; then five others with the same images,
    steps and seeds exchange nothing. The tables and the
    picture of an experiment tell the rest.
    """
    options = DemoOptions(
        out=out,
        config=config,
        seeds=seeds,
        nodes=nodes,
        rounds=rounds,
        keep=keep,
        quick=quick,
        settings=flags,
    )

    async def main() -> int:
        return await run(options, Client(), Console())

    return uvloop.run(main())
