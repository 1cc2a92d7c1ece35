"""`fednode top`: the whole mesh live in the terminal."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click
import uvloop
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from fednode.app.asking import Replies, Targets, ask_all
from fednode.app.reach import Make, reach
from fednode.terminal import live
from fednode.terminal.formats import format_option, plain
from fednode.terminal.live import LiveNode, Past
from fednode.terminal.paths import PATH

EVERY_S: Final = 1.0


@click.command()
@click.argument("address", required=False)
@click.option("--peers", "peers_path", type=PATH, help="The mesh [peers.yaml].")
@click.option("--state", type=PATH, help="Whose key to use where the mesh speaks TLS.")
@click.option("--times", type=click.IntRange(0), default=0, help="Looks to take; 0: until Ctrl-C.")
@format_option
def top(
    address: str | None, peers_path: Path | None, state: Path | None, times: int, as_json: bool
) -> None:
    """Show all nodes live: rounds, losses, bytes, and who sends to whom.

    ADDRESS (host:port, or a name) shows one. With `--format json` each look is a
    line of JSON.
    """
    make, targets = reach(address, peers_path, state)
    uvloop.run(_run(make, targets, times, as_json))


async def _run(make: Make, targets: Targets, times: int, as_json: bool) -> None:
    past: dict[str, Past] = {}
    console = Console()
    async with make() as client:
        if as_json:
            for _ in _looks(times):
                replies = await ask_all(client, targets)
                shown = {where: reply and plain(reply) for (_, where), reply in replies}
                click.echo(json.dumps({"time": time.time(), "nodes": shown}, sort_keys=True))
                await asyncio.sleep(EVERY_S)
            return
        with Live(console=console, auto_refresh=False, screen=console.is_terminal) as screen:
            for _ in _looks(times):
                replies = await ask_all(client, targets)
                now = time.monotonic()
                for (_, where), reply in replies:
                    if reply is not None:
                        past.setdefault(where, Past()).note(reply, now)
                screen.update(page(replies, past, time.strftime("%H:%M:%S")), refresh=True)
                await asyncio.sleep(EVERY_S)


def _looks(times: int) -> Iterator[int]:
    at = 0
    while not times or at < times:
        yield at
        at += 1


def page(replies: Replies, past: Mapping[str, Past], clock: str) -> RenderableType:
    """Return the whole page."""
    answers = [reply for _, reply in replies if reply is not None]
    head = Text.assemble(("fednode top", "bold"), f"  {clock}  {len(answers)} of {len(replies)} ")
    head.append("nodes answer; Ctrl-C ends this, and nothing else")
    if answers:
        head.append(f"\nmesh {answers[0].mesh}, {answers[0].policy}, {answers[0].model}")
    nodes = [
        LiveNode(name or where, "no answer", None, Past())
        if reply is None
        else LiveNode(reply.name, reply.life, reply, past.get(where, Past()))
        for (name, where), reply in replies
    ]
    return live.page(head, nodes)
