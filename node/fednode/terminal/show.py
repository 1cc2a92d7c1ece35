"""Draw the status of nodes for people: one node in full, or a mesh with one line per node."""

from __future__ import annotations

import io
import time
from collections.abc import Collection, Sequence
from typing import Any, Final

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from fednode.core.types import SPLITS, ZERO_SHOT
from fednode.core.view import Life
from fednode.errors import NeverMerged
from fednode.observe import summary
from fednode.observe.present import FIRST_ROUND
from fednode.units import duration, size
from fednode.wire.gen import status_pb2

STYLES: Final = {
    **dict.fromkeys(("alive", Life.RUNNING), "green"),
    **dict.fromkeys(("suspect", Life.WAITING, Life.LOADING, Life.PAUSED, "starting"), "yellow"),
    **dict.fromkeys(("dead", "left", "refused", "revoked", "quarantined"), "red"),
    **dict.fromkeys((Life.LEAVING, Life.STOPPING, "no answer"), "red"),
    Life.FINISHED: "cyan",
}
WIDTH_MAX: Final = 10_000
"""Columns of text that is piped: every row of a table is one line."""
LAST_S: Final = 4e9
"""The last second since the epoch that is shown as a time of day."""
NUMBERS: Final = frozenset({"round", "sent", "received", "loss", "messages", "peers", "merged"})
Reply = status_pb2.StatusReply


def node(reply: Reply) -> RenderableType:
    """Return one node in full."""
    head = Text.assemble((reply.name, "bold"), f" of mesh {reply.mesh} at {reply.address}")
    doing = Text.assemble(life(reply), f": {summary.headline(reply)}")
    table = Table.grid(padding=(0, 2))
    gains = [("does it help?", text) for text in reply.compared]
    for title, text in (*gains, *summary.facts(reply)):
        table.add_row(Text(title, "dim"), Text(text))
    parts: list[RenderableType] = [head, doing, table]
    if reply.peers:
        parts.append(_peers(reply.peers))
        said = "\n".join(reply.warnings)
        parts += [
            Text(f"{peer.name}: {peer.reason}")
            for peer in reply.peers
            if peer.reason and peer.reason not in said
        ]
    parts += [Text(f"note: {text}") for text in reply.notes]
    parts += [Text(f"warning: {text}", "yellow") for text in reply.warnings]
    parts += [
        Text(f"{event.level}: {event.text}{_at(event.time)}", "yellow") for event in reply.events
    ]
    return Group(*parts)


def print_whole(shown: RenderableType) -> None:
    """Print to standard output: in colour on a terminal; elsewhere lines that are never wrapped."""
    console = Console()
    if console.is_terminal:
        console.print(shown)
        return
    wide = Console(file=io.StringIO(), width=WIDTH_MAX, color_system=None)
    wide.print(shown)
    text = wide.file.getvalue()  # type: ignore[attr-defined]
    click.echo("".join(f"{line.rstrip()}\n" for line in text.splitlines()), nl=False)


def mesh(replies: Sequence[tuple[tuple[str, str], Reply | None]]) -> RenderableType:
    """Return a line for each (name, address), and their warnings; None: it does not answer."""
    accuracy = accuracies_of([reply for _, reply in replies if reply is not None])[0]
    table = grid(
        *("node", "address", "state", "round", "merged", "loss", f"{accuracy} %", "zero-shot %"),
        *("peers", "sent"),
    )
    for (name, address), reply in replies:
        if reply is None:
            table.add_row(Text(name, "bold"), address, shade("no answer"))
            continue
        table.add_row(
            Text(reply.name, "bold"),
            address,
            life(reply),
            summary.rounds(reply),
            merged(reply),
            loss(reply),
            percent(reply, accuracy),
            percent(reply, ZERO_SHOT + accuracy),
            summary.alive(reply),
            size(reply.traffic.serialized_out),
        )
    sentences = [(name, text) for (name, _), reply in replies if reply for text in said_of(reply)]
    lines = [Text(f"{name}: {text}" if name else text, "yellow") for name, text in sentences]
    gain = summary.mesh_gain(reply.gain for _, reply in replies if reply is not None)
    return Group(table, *([Text(gain)] if gain else []), *lines)


def said_of(reply: Reply) -> list[str]:
    """Return what a view of the whole mesh says of a node: what it loads, waits for, warns of."""
    waits = (note for note in reply.notes if note.startswith(FIRST_ROUND))
    return [*([reply.working] if reply.working else []), *waits, *reply.warnings]


def accuracies_of(replies: Sequence[Reply]) -> list[str]:
    """Return the names of the accuracies that some of the nodes measure; "own" if none does."""
    return [key for key in SPLITS if any(key in reply.measured for reply in replies)] or ["own"]


def loss(reply: Reply) -> str:
    """Return the loss of the last round; "" if there is none."""
    return f"{reply.metrics['loss']:.3g}" if "loss" in reply.metrics else ""


def merged(reply: Reply) -> str:
    """Return how many rounds merged what peers sent, of how many; "alone" if that is its wish."""
    if reply.alone_by_wish or not reply.rounds_run:
        return "alone" if reply.alone_by_wish else ""
    return f"{reply.rounds_merged}/{reply.rounds_run}"


def never_merged(reply: Reply) -> bool:
    """Tell whether a node has ended its rounds, merged none, and was meant to merge them."""
    ended = reply.life in {Life.FINISHED, Life.PAUSED, Life.LEAVING, Life.STOPPING}
    return ended and bool(reply.rounds_run) and not (reply.rounds_merged or reply.alone_by_wish)


def require_merged(
    replies: Sequence[Reply], where: str = "`fednode status NAME` says why."
) -> None:
    """Raise NeverMerged if a node ended its rounds, merged none, and was meant to merge them.

    where: a sentence that says where the reason is to be read.
    """
    alone = [reply for reply in replies if never_merged(reply)]
    if alone:
        names = ", ".join(f"{reply.name} (0 of {reply.rounds_run})" for reply in alone)
        raise NeverMerged(
            f"These nodes ended their rounds and merged nothing of their peers: {names}. {where}"
        )


def percent(reply: Reply, accuracy: str) -> str:
    """Return a measured accuracy in percent; "" if the node does not measure it."""
    return f"{100 * reply.measured[accuracy]:.1f}" if accuracy in reply.measured else ""


def life(reply: Reply) -> Text:
    """Return a node's life in its colour."""
    return Text(summary.life(reply), STYLES.get(reply.life, ""))


def _peers(peers: Sequence[status_pb2.Peer]) -> Table:
    by_relay = any(peer.path.startswith("relay") or peer.address == "relay" for peer in peers)
    ways = ("path",) if by_relay else ()
    names = ("peer", "address", "state", *ways, "round", "heard", "sent", "received")
    table = grid(*names, numbers=NUMBERS)
    for peer in peers:
        table.add_row(
            peer.name,
            peer.address,
            shade(peer.state),
            *([peer.path] if by_relay else []),
            str(peer.round),
            f"{duration(peer.heard_s)} ago" if peer.heard_s >= 0 else "never",
            size(peer.traffic.serialized_out),
            size(peer.traffic.serialized_in),
        )
    return table


class Grid(Table):
    """A table that shows texts as they are: rich interprets no markup in them."""

    def add_column(self, header: RenderableType = "", *given: Any, **more: Any) -> None:
        super().add_column(_literal(header), *given, **more)

    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:
        super().add_row(*map(_literal, cells), **more)


def _literal(cell: Any) -> Any:
    return Text(cell) if isinstance(cell, str) else cell


def grid(*columns: str, numbers: Collection[str] = NUMBERS) -> Grid:
    """Return an empty table; columns of numbers are aligned to the right."""
    table = Grid(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for column in columns:
        number = column in numbers or column.endswith("%")
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def _at(moment: float) -> str:
    """Return when something happened, for the end of a line; "" if it is not known."""
    return time.strftime(" (%H:%M:%S)", time.localtime(min(moment, LAST_S))) if moment else ""


def shade(state: str) -> Text:
    """Return the word for a state in its colour."""
    return Text(summary.STATES.get(state, state), STYLES.get(state, ""))
