"""Commands that ask a node for one thing: pause, resume, accept."""

from __future__ import annotations

from pathlib import Path

import click
import uvloop

from fednode.app.reach import reach
from fednode.terminal.paths import PATH


def _command(name: str, text: str, alone: str = "") -> click.Command:
    """Return a command that asks a node for `name`, or for "alone" with the flag of that name."""

    @click.command(name, help=text)
    @click.argument("address")
    @click.option("--peers", "peers_path", type=PATH, help="Mesh to find a name in [peers.yaml].")
    @click.option("--state", type=PATH, help="Its state directory, where the mesh speaks TLS.")
    def run(
        address: str, peers_path: Path | None, state: Path | None, without: bool = False
    ) -> None:
        make, ((_, where),) = reach(address, peers_path, state)

        async def ask() -> str:
            async with make() as client:
                return await client.control(where, "alone" if without else name)

        click.echo(uvloop.run(ask()))

    return click.option("--alone", "without", is_flag=True, help=alone)(run) if alone else run


pause = _command("pause", "Let the node at ADDRESS finish its round and begin no other.")
resume = _command(
    "resume",
    "Let the paused node at ADDRESS go on.",
    "Begin the first round without the peers that the node waits for.",
)
accept = _command(
    "accept",
    "Let the node at ADDRESS go on from its state directory, although its key has spoken in later "
    "rounds elsewhere: the directory was restored from a backup, or copied. With privacy on such a "
    "node is silent until then. What was released elsewhere counts as spent.",
)
