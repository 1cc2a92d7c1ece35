"""`fednode status [ADDRESS]`: how a node is, or how all nodes of a mesh are."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click
from google.protobuf.json_format import MessageToDict
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from node.commands import show
from node.errors import ConfigError, FednodeError, Unreachable
from node.runtime.client import Client
from node.wire.gen import status_pb2

PEERS: Final = Path("peers.yaml")
EVERY_S: Final = 1.0


@click.command()
@click.argument("address", required=False)
@click.option(
    "--peers", "peers_path", type=Path, help="Mesh to show or find a name in [peers.yaml]."
)
@click.option("--watch", is_flag=True, help="Show it anew every second until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--quiet", is_flag=True, help="Print nothing; exit 0 where the node answers.")
def status(
    address: str | None, peers_path: Path | None, watch: bool, as_json: bool, quiet: bool
) -> None:
    """Show how the node at ADDRESS is: host:port, or its name in peers.yaml.

    Without ADDRESS one line for every node of peers.yaml is shown. Exit code 2 where nobody
    answers.
    """
    if watch and (as_json or quiet):
        raise ConfigError("--watch shows a live page; it goes with neither --json nor --quiet.")
    targets = _targets(address, peers_path)
    ask = _one if address is not None else _all
    if watch:
        _watch(ask, targets)
        return
    replies = asyncio.run(ask(targets))
    if as_json:
        shown = [_plain(reply) for _, reply in replies if reply]
        click.echo(json.dumps(shown if address is None else shown[0], indent=2, sort_keys=True))
    elif not quiet:
        Console().print(_page(address is not None, replies))
    if not any(reply for _, reply in replies):
        raise Unreachable(f"None of the {len(targets)} nodes of peers.yaml answers: start them.")


Target = tuple[str, str]
"""Name and address of a node; the name is empty where only its address was given."""
Targets = Sequence[Target]
Replies = list[tuple[Target, status_pb2.StatusReply | None]]


def _targets(address: str | None, peers_path: Path | None) -> Targets:
    """Return (name, address) of who is asked; a name is looked up in peers.yaml."""
    if address is not None and ":" in address:
        return [("", address)]
    from node.config import load_peers

    if address is None and peers_path is None and not PEERS.exists():
        raise ConfigError(
            "Whose status? Give host:port, or --peers FILE for all nodes of a mesh (there is no "
            "peers.yaml here)."
        )
    peers = load_peers(peers_path or PEERS)
    if address is not None:
        return [(address, peers.entry(address).address)]
    return [(peer.name, peer.address) for peer in peers.peers]


async def _one(targets: Targets) -> Replies:
    async with Client() as client:
        return [(target, await client.status(target[1])) for target in targets]


async def _all(targets: Targets) -> Replies:
    async with Client() as client:

        async def ask(where: str) -> status_pb2.StatusReply | None:
            try:
                return await client.status(where)
            except FednodeError:
                return None

        found = await asyncio.gather(*(ask(where) for _, where in targets))
    return list(zip(targets, found, strict=True))


def _page(single: bool, replies: Replies) -> RenderableType:
    if single:
        return Group(*(show.node(reply) for _, reply in replies if reply))
    return show.mesh(replies)


def _watch(ask: Callable[[Targets], Any], targets: Targets) -> None:
    """Draw the page again and again; a node that is silent for a while is no reason to end."""
    console = Console()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            try:
                page = _page(ask is _one, asyncio.run(ask(targets)))
            except Unreachable as fault:
                page = Text(f"{fault} Still watching; Ctrl-C ends it.")
            live.update(page, refresh=True)
            time.sleep(EVERY_S)


def _plain(reply: status_pb2.StatusReply) -> dict[str, Any]:
    return MessageToDict(
        reply, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
