"""Commands that ask a node for one thing: pause, resume."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import uvloop

from fednode.app.reach import reach
from fednode.terminal.paths import PATH

ASKED: Final = {"alone": "alone", "older_state": "resume --older-state"}
"""What a flag asks the node for, in place of the command's own name."""


def _command(name: str, text: str, **flags: str) -> click.Command:
    """Return a command that asks a node for `name`. flags: help of each flag, by its parameter."""

    @click.command(name, help=text)
    @click.argument("address")
    @click.option("--peers", "peers_path", type=PATH, help="Mesh to find a name in [peers.yaml].")
    @click.option("--state", type=PATH, help="Its state directory, where the mesh speaks TLS.")
    def run(address: str, peers_path: Path | None, state: Path | None, **given: bool) -> None:
        make, ((_, where),) = reach(address, peers_path, state)
        asked = next((ASKED[flag] for flag in given if given[flag]), name)

        async def ask() -> str:
            async with make() as client:
                return await client.control(where, asked)

        click.echo(uvloop.run(ask()))

    for flag, help_ in reversed(flags.items()):
        run = click.option(f"--{flag.replace('_', '-')}", flag, is_flag=True, help=help_)(run)
    return run


pause = _command("pause", "Let the node at ADDRESS finish its round and begin no other.")
resume = _command(
    "resume",
    "Let the paused node at ADDRESS go on.",
    alone="Begin the first round without the peers that the node waits for.",
    older_state="Go on from a state directory that is older than what peers have seen: it was "
    "restored from a backup, or copied. With privacy on such a node is paused until then. The "
    "rounds in between count as spent.",
)
