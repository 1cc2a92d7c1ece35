"""`fednode mesh`: several daemons on this machine; `fednode mesh demo` compares two methods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
import uvloop
from rich.console import Console

from fednode.lab.demo import demo as demos
from fednode.terminal.options import PATH
from fednode_bootstrap import local
from fednode_bootstrap.mesh import MeshSettings


@click.group(invoke_without_command=True)
@click.option("--nodes", default=4, show_default=True, help="How many daemons.")
@click.option("--config", type=PATH, help="node.yaml of every node; defaults work without one.")
@click.option("--set", "flags", multiple=True, metavar="KEY=VALUE", help="For every node.")
@click.option("--rounds", type=int, help="Rounds to run; 0 for no end.")
@click.option("--policy", help="Method, such as promptfl or local [zerodfl].")
@click.option("--keep", is_flag=True, help="Keep state and logs of the nodes.")
@click.option("--stay", is_flag=True, help="Keep serving after the last round, until Ctrl-C.")
@click.option("--tls", is_flag=True, help="Give every node a key; mutual TLS between them.")
@click.option(
    "--run-dir",
    type=PATH,
    default=local.RUNS,
    help="Where state and logs are; kept, and gone on with.",
)
@click.pass_context
def mesh(
    context: click.Context,
    /,
    flags: tuple[str, ...],
    rounds: int | None,
    policy: str | None,
    keep: bool,
    stay: bool,
    **given: Any,
) -> int:
    """Run several nodes on this machine until they have finished; Ctrl-C ends all of them.

    Each node is a daemon with one CPU thread, its own port of 127.0.0.1 and its own state
    directory. If a node dies, its last line of output is shown, and the others continue.
    """
    if context.invoked_subcommand is not None:
        return 0
    more = [] if rounds is None else [f"rounds.max={rounds}"]
    more += [] if policy is None else [f"policy.name={policy}"]
    settings = MeshSettings(settings=(*flags, *more), **given)

    async def main() -> int:
        return await local.run(settings, Console(), keep=keep, stay=stay)

    return uvloop.run(main())


def _seeds(ctx: click.Context, param: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(seed) for seed in text.split(","))
    except ValueError:
        raise click.BadParameter(
            f"'{text}' is no list of whole numbers: write them as 1,2,3."
        ) from None


@mesh.command()
@click.option(
    "--seeds",
    default=",".join(map(str, demos.SEEDS)),
    show_default=True,
    callback=_seeds,
    help="Runs of each method, one for each seed.",
)
@click.option("--rounds", type=int, help="Rounds of each run [the configuration's].")
@click.option("--quick", is_flag=True, help="One seed and few rounds: does it run at all?")
@click.option("--keep", is_flag=True, help="Keep state and logs of all daemons.")
@click.option("--config", type=PATH, default=demos.CONFIG, help="node.yaml of every node.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="For every node.")
@click.option("--nodes", default=demos.NODES, show_default=True, help="Daemons of each run.")
@click.option(
    "--out", type=PATH, default=demos.OUT, show_default=True, help="Where the report goes."
)
def demo(quick: bool, **given: Any) -> int:
    """Compare ZeroDFL, gda and their controls on the built-in images, with real daemons.

    Five daemons, each with images of other classes, run each method in turn, with the same seeds.
    The tables and the picture of an experiment tell the rest.
    """
    options = demos.DemoOptions(**given)
    if quick:
        options = replace(
            options, seeds=options.seeds[:1], rounds=options.rounds or demos.QUICK_ROUNDS
        )

    async def main() -> int:
        return await demos.run(options, None, Console())

    return uvloop.run(main())
