"""`fednode status [ADDRESS]`: how a node is, or how all nodes of a mesh are."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from google.protobuf.json_format import MessageToDict
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from node.commands import show
from node.commands.reach import Make, Target, Targets, reach
from node.errors import ConfigError, FednodeError, Unreachable
from node.wire.gen import status_pb2

EVERY_S: Final = 1.0


@click.command()
@click.argument("address", required=False)
@click.option(
    "--peers", "peers_path", type=Path, help="Mesh to show or find a name in [peers.yaml]."
)
@click.option("--state", type=Path, help="Whose key to use where the mesh speaks TLS.")
@click.option("--watch", is_flag=True, help="Show it anew every second until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--quiet", is_flag=True, help="Print nothing; exit 0 where the node answers.")
def status(
    address: str | None,
    peers_path: Path | None,
    state: Path | None,
    watch: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show how the node at ADDRESS is: host:port, or its name in peers.yaml.

    Without ADDRESS one line for every node of peers.yaml is shown. Exit code 2 where nobody
    answers.
    """
    if watch and (as_json or quiet):
        raise ConfigError("--watch shows a live page; it goes with neither --json nor --quiet.")
    client, targets = reach(address, peers_path, state)
    ask = partial(_one if address is not None else _all, client)
    single = address is not None
    if watch:
        _watch(ask, targets, single)
        return
    replies = asyncio.run(ask(targets))
    if as_json:
        shown = [_plain(reply) for _, reply in replies if reply]
        click.echo(json.dumps(shown if address is None else shown[0], indent=2, sort_keys=True))
    elif not quiet:
        Console().print(_page(address is not None, replies))
    if not any(reply for _, reply in replies):
        raise Unreachable(f"None of the {len(targets)} nodes of peers.yaml answers: start them.")


Replies = list[tuple[Target, status_pb2.StatusReply | None]]


async def _one(made: Make, targets: Targets) -> Replies:
    async with made() as client:
        return [(target, await client.status(target[1])) for target in targets]


async def _all(made: Make, targets: Targets) -> Replies:
    async with made() as client:

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


def _watch(ask: Callable[[Targets], Any], targets: Targets, single: bool) -> None:
    """Draw the page again and again; a node that is silent for a while is no reason to end."""
    console = Console()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            try:
                page = _page(single, asyncio.run(ask(targets)))
            except Unreachable as fault:
                page = Text(f"{fault} Still watching; Ctrl-C ends it.")
            live.update(page, refresh=True)
            time.sleep(EVERY_S)


def _plain(reply: status_pb2.StatusReply) -> dict[str, Any]:
    return MessageToDict(
        reply, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
