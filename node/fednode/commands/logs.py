"""`fednode logs [ADDRESS]`: show the records of a node, or of all nodes of a mesh."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import click
import uvloop
from rich.console import Console
from rich.text import Text

from fednode.app.client import Make, Target, Targets, everyone, reach
from fednode.errors import FednodeError, Unreachable
from fednode.observe.client import Client
from fednode.observe.events import LEVELS
from fednode.terminal.options import PATH, format_option
from fednode.wire.gen import status_pb2

STYLES: Final = {"debug": "dim", "warning": "yellow", "error": "red"}
AGAIN_S: Final = 1.0
Line = tuple[str, status_pb2.Event]


@click.command()
@click.argument("address", required=False)
@click.option("--peers", "peers_path", type=PATH, help="The mesh [peers.yaml].")
@click.option("--state", type=PATH, help="Whose key to use where the mesh speaks TLS.")
@click.option(
    "--level", type=click.Choice(tuple(LEVELS)), default="info", show_default=True,
    help="The least to show; debug has each message.",
)  # fmt: skip
@click.option("--follow", is_flag=True, help="Go on as it happens, until Ctrl-C.")
@format_option
def logs(
    address: str | None,
    peers_path: Path | None,
    state: Path | None,
    level: str,
    follow: bool,
    as_json: bool,
) -> None:
    """Show the records of the node at ADDRESS: host:port, or its name.

    Without ADDRESS, the records of all members are shown, sorted by time. A node keeps
    the latest 1,000 records of each run; older records are in fednode.log in its state directory.
    """
    make, targets = reach(address, peers_path, state)
    uvloop.run(_run(make, targets, address is None, level, follow, as_json))


async def _run(
    make: Make, targets: Targets, whole: bool, level: str, follow: bool, as_json: bool
) -> None:
    async with make() as client:
        if whole:
            targets = await everyone(client, targets)
        show = partial(_print, Console(soft_wrap=True), as_json, len(targets) == 1)
        past = await asyncio.gather(*(_past(client, target, level) for target in targets))
        lines = sorted(
            (line for kept in past for line in kept or ()),
            key=lambda line: (line[1].time, line[0], line[1].number),
        )
        for line in lines:
            show(line)
        if not follow and all(kept is None for kept in past):
            raise Unreachable(_silence(targets))
        if follow:
            newest = [max((event.number for _, event in kept or ()), default=0) for kept in past]
            following = zip(targets, newest, strict=True)
            await asyncio.gather(*(_follow(client, *one, level, show) for one in following))


def _silence(targets: Targets) -> str:
    if len(targets) > 1:
        return f"None of the {len(targets)} nodes answers: start them."
    name, where = targets[0]
    return f"{name or 'The node'} at {where} does not answer: start it."


async def _past(client: Client, target: Target, level: str) -> list[Line] | None:
    """Return the records that a node kept; None if it does not answer."""
    name, where = target
    try:
        return [
            (name or where, event) async for event in client.watch(where, 0, level, follow=False)
        ]
    except FednodeError:
        return None


async def _follow(
    client: Client, target: Target, number: int, level: str, show: Callable[[Line], None]
) -> None:
    """Print a node's records as they arrive; if the node stops answering, try again."""
    name, where = target
    while True:
        try:
            async for event in client.watch(where, number, level, follow=True):
                number = max(number, event.number)
                show((name or where, event))
        except FednodeError as fault:
            print(f"{name or where}: {fault} Still following; Ctrl-C ends it.", file=sys.stderr)
        await asyncio.sleep(AGAIN_S)


def _print(console: Console, as_json: bool, single: bool, line: Line) -> None:
    name, event = line
    if as_json:
        told = {"time": event.time, "level": event.level, "node": name, "event": event.kind,
                "text": event.text, "number": event.number,
                "fields": dict(event.fields)}  # fmt: skip
        click.echo(json.dumps(told, sort_keys=True, ensure_ascii=False))
        return
    text = Text(time.strftime("%H:%M:%S ", time.localtime(event.time)), "dim")
    if not single:
        text.append(f"{name}: ", "bold")
    console.print(text.append(event.text, STYLES.get(event.level, "")))
