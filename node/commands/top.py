"""`fednode top`: the whole mesh live in the terminal."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from node.commands import show
from node.commands.asking import Replies, ask_all
from node.commands.formats import format_option, plain
from node.commands.reach import Make, Targets, reach
from node.units import size
from node.wire.gen import status_pb2

EVERY_S: Final = 1.0
KEPT: Final = 24
MATRIX_MAX: Final = 12
BARS: Final = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
EVENTS: Final = 6


@dataclass(slots=True)
class Past:
    """What was seen of one node: losses of its latest rounds, and bytes with when."""

    losses: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    round: int = 0
    sent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=KEPT))

    def note(self, reply: status_pb2.StatusReply, now: float) -> None:
        """Take one answer."""
        loss = reply.metrics.get("loss", math.nan)
        if reply.round != self.round and math.isfinite(loss):
            self.losses.append(loss)
        self.round = reply.round
        self.sent.append((now, reply.traffic.serialized_out))

    @property
    def rate(self) -> float:
        """Bytes a second over what was seen."""
        if len(self.sent) < 2:
            return 0.0
        (began, first), (ended, last) = self.sent[0], self.sent[-1]
        return max(0, last - first) / (ended - began) if ended > began else 0.0


@click.command()
@click.argument("address", required=False)
@click.option("--peers", "peers_path", type=Path, help="The mesh [peers.yaml].")
@click.option("--state", type=Path, help="Whose key to use where the mesh speaks TLS.")
@click.option("--times", type=click.IntRange(0), default=0, help="Looks to take; 0: until Ctrl-C.")
@format_option
def top(
    address: str | None, peers_path: Path | None, state: Path | None, times: int, as_json: bool
) -> None:
    """Show all nodes of peers.yaml live: rounds, losses, bytes, and who sends to whom.

    ADDRESS (host:port, or a name in peers.yaml) shows one. With `--format json` each look is a
    line of JSON.
    """
    make, targets = reach(address, peers_path, state)
    asyncio.run(_run(make, targets, times, as_json))


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
        with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
            for _ in _looks(times):
                replies = await ask_all(client, targets)
                now = time.monotonic()
                for (_, where), reply in replies:
                    if reply is not None:
                        past.setdefault(where, Past()).note(reply, now)
                live.update(page(replies, past, time.strftime("%H:%M:%S")), refresh=True)
                await asyncio.sleep(EVERY_S)


def _looks(times: int) -> Iterator[int]:
    at = 0
    while not times or at < times:
        yield at
        at += 1


def page(replies: Replies, past: Mapping[str, Past], clock: str) -> RenderableType:
    """Return the whole page."""
    found = [reply for _, reply in replies if reply is not None]
    head = Text.assemble(("fednode top", "bold"), f"  {clock}  {len(found)} of {len(replies)} ")
    head.append("nodes answer; Ctrl-C ends this, and nothing else")
    if found:
        head.append(f"\nmesh {found[0].mesh}, {found[0].policy}, {found[0].model}")
    parts: list[RenderableType] = [head, Text(), _nodes(replies, past)]
    if 1 < len(replies) <= MATRIX_MAX:
        parts += [Text("\nmessages sent, from row to column", "dim"), _matrix(replies)]
    events = sorted(
        ((one.time, reply.name, one) for reply in found for one in reply.events),
        key=lambda each: (each[0], each[1]),
    )[-EVENTS:]
    for moment, name, one in events:
        line = f"{time.strftime('%H:%M:%S', time.localtime(moment))} {name}: {one.text}"
        parts.append(Text(line, "red" if one.level == "error" else "yellow", overflow="ellipsis"))
    return Group(*parts)


def _nodes(replies: Replies, past: Mapping[str, Past]) -> Table:
    accuracy = show.accuracy_of([reply for _, reply in replies if reply is not None])
    columns = ("node", "state", "round", "doing", "loss", "", f"{accuracy} %", "peers", "sent")
    table = show.grid(*columns, "a second")
    for (name, where), reply in replies:
        if reply is None:
            table.add_row(Text(name or where, "bold"), show.shade("no answer"))
            continue
        held = past.get(where, Past())
        alive = sum(peer.state == "alive" for peer in reply.peers)
        table.add_row(
            Text(reply.name, "bold"),
            show.shade(reply.life),
            show.rounds(reply.round, reply.rounds_max),
            f"{reply.phase} {reply.step}/{reply.steps}" if reply.steps else reply.phase,
            f"{reply.metrics['loss']:.3g}" if "loss" in reply.metrics else "",
            Text(bars(list(held.losses)), "cyan"),
            f"{100 * reply.measured[accuracy]:.1f}" if accuracy in reply.measured else "",
            f"{alive}/{len(reply.peers)}",
            size(reply.traffic.serialized_out),
            f"{size(round(held.rate))}/s",
        )
    return table


def _matrix(replies: Replies) -> Table:
    """Return who sent how many messages to whom, as each sender says."""
    names = [reply.name if reply else name for (name, _), reply in replies]
    table = show.grid("", *names)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, (_, reply) in zip(names, replies, strict=True):
        peers = {peer.name: peer for peer in reply.peers} if reply else {}
        cells = []
        for other in names:
            peer = peers.get(other)
            if peer is None:
                cells.append(Text("\u00b7" if reply or other == name else "?", "dim"))
            else:
                cells.append(
                    Text(f"{peer.traffic.messages_out:,}", show.STYLES.get(peer.state, ""))
                )
        table.add_row(Text(name, "bold"), *cells)
    return table


def bars(values: list[float]) -> str:
    """Return numbers as a row of bars, the least of them the lowest."""
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in values)
