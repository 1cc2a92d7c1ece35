"""`fednode leave`: let a node say goodbye."""

from __future__ import annotations

from pathlib import Path

import click
import uvloop

from fednode.app.reach import Make, reach
from fednode.terminal.paths import PATH


@click.command()
@click.argument("node", required=False)
@click.option("--peers", "peers_path", type=PATH, help="Mesh to find a name in [peers.yaml].")
@click.option("--state", type=PATH, help="Its state directory, where the mesh speaks TLS.")
def leave(node: str | None, peers_path: Path | None, state: Path | None) -> None:
    """Let NODE (a name or an address) say goodbye to its peers, and stop.

    Without NODE it is the node whose files lie in this folder. `fednode reset --all` then deletes
    its key and certificate, too.
    """
    if node is None:
        from fednode.app.client import client_of, place_of
        from fednode.app.create import node_here

        plan = node_here()
        click.echo(uvloop.run(_leave(lambda: client_of(plan.peers, plan.state), place_of(plan))))
        return
    make, ((_, where),) = reach(node, peers_path, state)
    click.echo(uvloop.run(_leave(make, where)))


async def _leave(make: Make, where: str) -> str:
    async with make() as client:
        return await client.control(where, "leave")
