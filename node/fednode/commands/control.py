"""`fednode pause | resume | leave | retune | rollback ADDRESS`: send one request to a node."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from fednode.app.reach import reach
from fednode.terminal.paths import PATH


def _command(name: str, text: str) -> click.Command:
    @click.command(name, help=text)
    @click.argument("address")
    @click.option("--peers", "peers_path", type=PATH, help="Mesh to find a name in [peers.yaml].")
    @click.option("--state", type=PATH, help="Its state directory, where the mesh speaks TLS.")
    def run(address: str, peers_path: Path | None, state: Path | None) -> None:
        make, ((_, where),) = reach(address, peers_path, state)

        async def ask() -> str:
            async with make() as client:
                return await client.control(where, name)

        click.echo(asyncio.run(ask()))

    return run


pause = _command("pause", "Let the node at ADDRESS finish its round and begin no other.")
resume = _command("resume", "Let the paused node at ADDRESS go on.")
leave = _command("leave", "Let the node at ADDRESS say goodbye to its peers.")
retune = _command("retune", "Let the node at ADDRESS run one more round.")
rollback = _command(
    "rollback", "Let the node at ADDRESS start its next round from its best prompts."
)
