"""The live view of a local mesh that `fednode mesh` and `fednode mesh demo` show."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fednode.core.view import Life
from fednode.observe.paths import sentences
from fednode.terminal import show
from fednode.units import size
from fednode.wire.gen import status_pb2

KEPT: Final = 24
MATRIX_MAX: Final = 12
BARS: Final = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
EVENTS: Final = 6


@dataclass(slots=True)
class Past:
    """The past of one node: losses of its latest rounds, and bytes sent with their times."""

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


@dataclass(frozen=True, slots=True)
class LiveNode:
    """One node. state: its life, or why it says nothing. reply: its latest answer, if any."""

    name: str
    state: str
    reply: status_pb2.StatusReply | None
    past: Past


def page(head: Text, nodes: Sequence[LiveNode]) -> RenderableType:
    """Return the whole view: head, a line for each node, messages between them, latest warnings."""
    parts: list[RenderableType] = [head, Text(), table(nodes)]
    if 1 < len(nodes) <= MATRIX_MAX and any(node.reply is not None for node in nodes):
        parts += [Text("\nmessages sent, from row to column", "dim"), _matrix(nodes)]
    events = sorted(
        (
            (event.time, node.name, event)
            for node in nodes
            if node.reply
            for event in node.reply.events
        ),
        key=lambda each: (each[0], each[1]),
    )[-EVENTS:]
    for node in nodes:
        for text in show.said_of(node.reply) if node.reply else ():
            parts.append(Text(f"{node.name}: {text}", "yellow", overflow="ellipsis"))
        for text in sentences(node.reply) if node.reply else ():
            parts.append(Text(f"{node.name}: {text}", "dim", overflow="ellipsis"))
    for moment, name, event in events:
        line = f"{time.strftime('%H:%M:%S', time.localtime(moment))} {name}: {event.text}"
        parts.append(Text(line, "red" if event.level == "error" else "yellow", overflow="ellipsis"))
    return Group(*parts)


def table(nodes: Sequence[LiveNode]) -> Table:
    """Return a line for each node."""
    accuracies = show.accuracies_of([node.reply for node in nodes if node.reply is not None])
    shown = (f"{key} %" for key in accuracies)
    shown_table = show.grid(
        *("node", "state", "round", "merged", "doing", "loss", ""),
        *shown,
        *("peers", "sent", "a second"),
    )
    for node in nodes:
        reply = node.reply
        start = Text(node.name, "bold"), Text(node.state, show.STYLES.get(node.state, "red"))
        if reply is None or reply.life == Life.LOADING:
            shown_table.add_row(*start)
            continue
        shown_table.add_row(
            *start,
            show.rounds(reply.round, reply.rounds_max),
            show.merged(reply),
            f"{reply.phase} {reply.step}/{reply.steps}" if reply.steps else reply.phase,
            show.loss(reply),
            Text(bars(list(node.past.losses)), "cyan"),
            *(show.percent(reply, key) for key in accuracies),
            "alone" if reply.alone else show.alive(reply),
            size(reply.traffic.serialized_out),
            f"{size(round(node.past.rate))}/s",
        )
    return shown_table


def _matrix(nodes: Sequence[LiveNode]) -> Table:
    """Return who sent how many messages to whom, as each sender says."""
    names = [node.name for node in nodes]
    matrix = show.grid("", *names)
    for column in matrix.columns[1:]:
        column.justify = "right"
    for node in nodes:
        peers = {peer.name: peer for peer in node.reply.peers} if node.reply else {}
        cells = []
        for other in names:
            peer = peers.get(other)
            if peer is None:
                cells.append(Text("\u00b7" if node.reply or other == node.name else "?", "dim"))
            else:
                cells.append(
                    Text(f"{peer.traffic.messages_out:,}", show.STYLES.get(peer.state, ""))
                )
        matrix.add_row(Text(node.name, "bold"), *cells)
    return matrix


def bars(values: list[float]) -> str:
    """Return numbers as a row of bars, the least of them the lowest."""
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in values)
