"""Show a local mesh while it runs: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fednode.core.view import Life, figures
from fednode.observe.summary import alive, paths, rounds
from fednode.terminal import show
from fednode.units import size
from fednode_bootstrap.mesh import LocalMesh, Member

EVENTS: Final = 6
LINE_EVERY_S: Final = 5.0


@contextlib.asynccontextmanager
async def shown(
    mesh: LocalMesh, console: Console, headline: Callable[[], str]
) -> AsyncIterator[LocalMesh]:
    """Run a mesh and show it. headline: returns what runs, how far, and the time left."""
    mesh.on_event = lambda text: console.print(Text(text))
    members = mesh.members.values()

    def picture() -> RenderableType:
        return page(Text(headline(), "bold"), members)

    if console.is_terminal:
        with Live(console=console, get_renderable=picture, transient=True):
            async with mesh:
                yield mesh
        return
    async with mesh:
        lines = asyncio.create_task(_print_lines(mesh, console, headline), name="lines")
        try:
            yield mesh
        finally:
            lines.cancel()


async def _print_lines(mesh: LocalMesh, console: Console, headline: Callable[[], str]) -> None:
    """Print a line when something is new, at most every LINE_EVERY_S."""
    printed, printed_at = "", float("-inf")
    while True:
        now, line = time.monotonic(), f"{headline()} | {summary(mesh.members.values())}"
        if line != printed and now >= printed_at + LINE_EVERY_S:
            printed, printed_at = line, now
            console.print(Text(line), soft_wrap=True)
        await mesh.change()


def summary(members: Collection[Member]) -> str:
    """Return a mesh in one line: each node's round, and its state where that is not running."""
    parts = []
    for member in members:
        status, words = member.status, [member.name]
        if status and status.life != Life.LOADING:
            words.append(rounds(status))
        if member.state != Life.RUNNING:
            words.append(member.state)
        if status and member.state == Life.FINISHED and show.merged(status):
            words.append(f"(merged {show.merged(status)})")
        parts.append(" ".join(words))
    return ", ".join(parts)


def accuracies(members: Collection[Member]) -> list[str]:
    """Return the latest accuracies of each node."""
    return [
        f"{member.name}: {figures(member.status.measured)}"
        for member in members
        if member.status and member.status.measured
    ]


def page(head: Text, members: Collection[Member]) -> RenderableType:
    """Return the whole view: head, a line for each node, latest warnings."""
    parts: list[RenderableType] = [head]
    replies = [(member.name, member.status) for member in members if member.status]
    if members:
        parts += [Text(), table(members)]
    for name, reply in replies:
        lines = [(text, "yellow") for text in show.said_of(reply)]
        lines += [(text, "dim") for text in paths(reply)]
        parts += [Text(f"{name}: {text}", style, overflow="ellipsis") for text, style in lines]
    events = [(event.time, name, event) for name, reply in replies for event in reply.events]
    for moment, name, event in sorted(events, key=lambda each: each[:2])[-EVENTS:]:
        line = f"{time.strftime('%H:%M:%S', time.localtime(moment))} {name}: {event.text}"
        parts.append(Text(line, "red" if event.level == "error" else "yellow", overflow="ellipsis"))
    return Group(*parts)


def table(members: Collection[Member]) -> Table:
    """Return a line for each node."""
    measured = show.accuracies_of([member.status for member in members if member.status])
    grid = show.grid(
        *("node", "state", "round", "merged", "doing", "loss"),
        *(f"{key} %" for key in measured),
        *("peers", "sent"),
    )
    for member in members:
        reply, state = member.status, member.state
        start = Text(member.name, "bold"), Text(state, show.STYLES.get(state, "red"))
        if reply is None or reply.life == Life.LOADING:
            grid.add_row(*start)
            continue
        grid.add_row(
            *start,
            rounds(reply),
            show.merged(reply),
            f"{reply.phase} {reply.step}/{reply.steps}" if reply.steps else reply.phase,
            show.loss(reply),
            *(show.percent(reply, key) for key in measured),
            "alone" if reply.alone else alive(reply),
            size(reply.traffic.serialized_out),
        )
    return grid
