"""`fednode status [ADDRESS]`: show the status of a node, or of all nodes of a mesh."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from functools import partial
from pathlib import Path
from typing import Final

import click
import uvloop
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from fednode.app.client import Make, Replies, Targets, ask, ask_all, reach
from fednode.errors import FednodeError, Refused, Unreachable
from fednode.observe.client import Client
from fednode.terminal import show
from fednode.terminal.options import PATH, format_option
from fednode.transports.base import Address
from fednode.wire.gen import status_pb2
from fednode.wire.replies import plain

EVERY_S: Final = 1.0
"""Seconds between two looks of --watch."""


@click.command()
@click.argument("address", required=False)
@click.option(
    "--peers", "peers_path", type=PATH, help="Mesh to show or find a name in [peers.yaml]."
)
@click.option("--state", type=PATH, help="Whose key to use where the mesh speaks TLS.")
@click.option("--watch", is_flag=True, help="Look again each second, until Ctrl-C.")
@format_option
def status(
    address: str | None,
    peers_path: Path | None,
    state: Path | None,
    watch: bool,
    as_json: bool,
) -> None:
    """Show the status of the node at ADDRESS: host:port, or its name.

    Without ADDRESS, one line is shown for every node of peers.yaml, and for the members that these
    nodes know. With --watch each look replaces the one before on a terminal; elsewhere the looks
    follow each other, with `--format json` a line each. The exit code is 5 if a node does not
    answer, and 1 if a node ended its rounds and merged nothing of its peers.

    \b
    loss    the mean loss of the last round's training
    own     accuracy on the node's own test images (base, new: on those of
            the classes that the nodes train on, and of the others)
    merged  in how many rounds the node merged what peers sent, of how many
    peers   how many of the other nodes are alive, of how many
    heard   the time since a peer's last message
    """
    make, targets = reach(address, peers_path, state)
    single = address is not None
    if watch:
        with contextlib.suppress(KeyboardInterrupt):
            uvloop.run(_watch(make, targets, single, as_json))
        return
    replies = ask(make, partial(_ask, targets=targets, single=single))
    answers = _answers(replies)
    if as_json:
        click.echo(_as_json(replies, single, indent=2))
    else:
        show.print_whole(_view(replies, single))
        if single and answers[0].page:
            from fednode.app.page_link import link  # saves 0.3 s in most calls

            if page := link(answers[0].page, answers[0].mesh, answers[0].name, state):
                click.echo(f"page: {page}")
    if not answers:
        asked = ", ".join(name or where for name, where in targets)
        why = ask(make, partial(_reason, where=targets[0][1]))
        raise Unreachable(f"None of the {len(targets)} nodes answers ({asked}): {why}")
    show.require_merged(answers)
    if len(answers) < len(replies):
        silent = ", ".join(name or where for (name, where), reply in replies if reply is None)
        raise Unreachable(
            f"{len(answers)} of {len(replies)} nodes answer; no answer from {silent}."
        )


async def _reason(client: Client, where: Address) -> str:
    """Return why a node does not answer, if it is there; else what to do."""
    try:
        await client.status(where)
    except FednodeError as fault:
        return str(fault) if "nobody answers" not in str(fault).lower() else "start them."
    return "ask again."


async def _ask(client: Client, targets: Targets, single: bool) -> Replies:
    """Ask all nodes; raise Unreachable if a single node was asked and does not answer."""
    if single:
        return [(target, await client.status(target[1])) for target in targets]
    return await ask_all(client, targets)


def _answers(replies: Replies) -> list[status_pb2.StatusReply]:
    return [reply for _, reply in replies if reply is not None]


def _as_json(replies: Replies, single: bool, indent: int | None = None) -> str:
    """Return the answers as JSON: a list, or the answer of a single node (null for none)."""
    shown = [plain(reply) for reply in _answers(replies)]
    one = shown[0] if shown else None
    return json.dumps(one if single else shown, indent=indent, sort_keys=True)


def _view(replies: Replies, single: bool) -> RenderableType:
    return show.node(_answers(replies)[0]) if single else show.mesh(replies)


async def _watch(make: Make, targets: Targets, single: bool, as_json: bool) -> None:
    """Show the nodes every EVERY_S seconds until cancelled."""
    console = Console()
    live = Live(console=console, auto_refresh=False, screen=True)
    in_place = console.is_terminal and not as_json
    async with make() as client, contextlib.AsyncExitStack() as stack:
        if in_place:
            stack.enter_context(live)
        while True:
            replies: Replies = []
            try:
                replies = await _ask(client, targets, single)
                view = _view(replies, single)
            except (Unreachable, Refused) as fault:
                view = Text(str(fault))
            page = Group(Text(f"{time.strftime('%X')}; Ctrl-C ends this view", "dim"), view)
            if as_json:
                click.echo(_as_json(replies, single))
            elif in_place:
                live.update(page, refresh=True)
            else:
                show.print_whole(page)
            await asyncio.sleep(EVERY_S)
