"""Commands that ask a node for one thing: pause, resume, leave."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import click

from fednode.app.client import Make, ask, client_of, place_of, reach
from fednode.app.create import node_here
from fednode.terminal.options import PATH

ASKED: Final = {"alone": "alone", "older_state": "resume --older-state"}
"""What a flag asks the node for, in place of the command's own name."""


def _command(name: str, text: str, **flags: str) -> click.Command:
    """Return a command that asks a node for `name`. flags: help of each flag, by its parameter."""
    text += "\n\nNODE is a name or an address; without it, the node whose files lie in this folder."

    @click.command(name, help=text)
    @click.argument("node", required=False)
    @click.option("--peers", "peers_path", type=PATH, help="Mesh to find a name in [peers.yaml].")
    @click.option("--state", type=PATH, help="Its state directory, where the mesh speaks TLS.")
    def run(node: str | None, peers_path: Path | None, state: Path | None, **given: bool) -> None:
        asked = next((ASKED[flag] for flag in given if given[flag]), name)
        make: Make
        if node is None:
            plan = node_here()
            make, where = partial(client_of, plan.peers, plan.state), place_of(plan)
        else:
            make, ((_, where),) = reach(node, peers_path, state)
        click.echo(ask(make, lambda client: client.control(where, asked)))

    for flag, help_ in reversed(flags.items()):
        run = click.option(f"--{flag.replace('_', '-')}", flag, is_flag=True, help=help_)(run)
    return run


pause = _command("pause", "Let NODE finish its round and begin no other.")
resume = _command(
    "resume",
    "Let the paused NODE go on.",
    alone="Begin the first round without the peers that the node waits for.",
    older_state="Go on from a state directory that is older than what peers have seen: it was "
    "restored from a backup, or copied. With privacy on such a node is paused until then. The "
    "rounds in between count as spent.",
)
leave = _command(
    "leave",
    "Let NODE say goodbye to its peers, and stop. `fednode reset --all` then deletes its key and "
    "certificate, too.",
)
