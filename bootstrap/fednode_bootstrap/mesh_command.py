"""`fednode mesh`: the command line of a local mesh."""

from __future__ import annotations

from pathlib import Path

import click
import uvloop
from rich.console import Console

from fednode.terminal.paths import PATH
from fednode_bootstrap.local import LocalOptions, run


@click.command()
@click.option("--nodes", default=4, show_default=True, help="How many daemons.")
@click.option("--config", type=PATH, help="node.yaml of every node; defaults work without one.")
@click.option("--set", "flags", multiple=True, metavar="KEY=VALUE", help="For every node.")
@click.option("--rounds", type=int, help="Rounds to run; 0 for no end.")
@click.option("--policy", help="Method, such as promptfl or local [zerodfl].")
@click.option("--keep", is_flag=True, help="Keep state and logs of the nodes.")
@click.option("--stay", is_flag=True, help="Keep serving after the last round, until Ctrl-C.")
@click.option("--tls", is_flag=True, help="Give every node a key; mutual TLS between them.")
@click.option("--run-dir", type=PATH, help="Where state and logs are; kept, and gone on with.")
def mesh(
    nodes: int,
    config: Path | None,
    flags: tuple[str, ...],
    rounds: int | None,
    policy: str | None,
    keep: bool,
    stay: bool,
    tls: bool,
    run_dir: Path | None,
) -> int:
    """Run several nodes on this machine until they have finished; Ctrl-C ends all of them.

    Each node is a daemon with one CPU thread, its own port of 127.0.0.1 and its own state
    directory. If a node dies, its last line of output is shown, and the others continue.
    """
    options = LocalOptions(
        nodes=nodes,
        config=config,
        settings=flags,
        rounds=rounds,
        policy=policy,
        run_dir=run_dir,
        keep=keep,
        stay=stay,
        tls=tls,
    )

    async def main() -> int:
        return await run(options, None, Console())

    return uvloop.run(main())
