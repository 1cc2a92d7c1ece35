"""Draw the status of nodes for people: one node in full, or a mesh with one line per node."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fednode.core.life import Life
from fednode.core.types import SPLITS, ZERO_SHOT
from fednode.observe.present import FIRST_ROUND
from fednode.observe.rows import columns
from fednode.units import duration, size
from fednode.wire.gen import status_pb2

STYLES: Final = {
    **dict.fromkeys(("alive", Life.RUNNING), "green"),
    **dict.fromkeys(("suspect", Life.WAITING, Life.LOADING, Life.PAUSED, "starting"), "yellow"),
    **dict.fromkeys(
        ("dead", "left", "refused", "revoked", "quarantined", "no answer", Life.LEAVING), "red"
    ),
    Life.FINISHED: "cyan",
}
CLASSES_SHOWN: Final = 6
LAST_S: Final = 4e9
"""The last second since the epoch that is shown as a time of day."""
NUMBERS: Final = frozenset({"round", "sent", "received", "loss", "messages", "peers"})
Reply = status_pb2.StatusReply


def node(reply: Reply) -> RenderableType:
    """Return one node in full."""
    head = Text.assemble((reply.name, "bold"), f" of mesh {reply.mesh} at {reply.address}")
    head.append(f", {reply.policy}, up {duration(reply.uptime_s)}")
    parts: list[RenderableType] = [head, _life(reply)]
    facts = Table.grid(padding=(0, 2))
    for title, text in _facts(reply):
        facts.add_row(Text(title, "dim"), Text(text))
    parts.append(facts)
    if reply.peers:
        parts.append(_peers(reply.peers))
    parts.append(_traffic(reply.traffic))
    parts += [Text(f"note: {text}") for text in reply.notes]
    parts += [Text(f"warning: {text}", "yellow") for text in reply.warnings]
    parts += [Text(f"{one.level}: {one.text}{_at(one.time)}", "yellow") for one in reply.events]
    return Group(*parts)


def mesh(replies: Sequence[tuple[tuple[str, str], Reply | None]]) -> RenderableType:
    """Return a line for each (name, address), and their warnings; None: it does not answer."""
    accuracy = accuracies_of([reply for _, reply in replies if reply is not None])[0]
    table = grid("node", "address", "state", "round", "loss", f"{accuracy} %", "peers", "sent")
    for (name, address), reply in replies:
        if reply is None:
            table.add_row(Text(name, "bold"), address, shade("no answer"))
            continue
        table.add_row(
            Text(reply.name, "bold"),
            address,
            shade(reply.life),
            rounds(reply.round, reply.rounds_max),
            loss(reply),
            percent(reply, accuracy),
            alive(reply),
            size(reply.traffic.serialized_out),
        )
    found = [(name, text) for (name, _), reply in replies if reply for text in said_of(reply)]
    lines = [Text(f"{name}: {text}" if name else text, "yellow") for name, text in found]
    return Group(table, *lines)


def said_of(reply: Reply) -> list[str]:
    """Return what a view of the whole mesh says of a node: its wait for others, its warnings."""
    waits = (note for note in reply.notes if note.startswith(FIRST_ROUND))
    return [*waits, *reply.warnings]


def accuracies_of(replies: Sequence[Reply]) -> list[str]:
    """Return the names of the accuracies that some of the nodes measure; "own" if none does."""
    return [key for key in SPLITS if any(key in one.measured for one in replies)] or ["own"]


def loss(reply: Reply) -> str:
    """Return the loss of the last round; "" if there is none."""
    return f"{reply.metrics['loss']:.3g}" if "loss" in reply.metrics else ""


def percent(reply: Reply, accuracy: str) -> str:
    """Return a measured accuracy in percent; "" if the node does not measure it."""
    return f"{100 * reply.measured[accuracy]:.1f}" if accuracy in reply.measured else ""


def alive(reply: Reply) -> str:
    """Return how many of a node's peers are alive, and how many there are."""
    return f"{sum(peer.state == 'alive' for peer in reply.peers)}/{len(reply.peers)}"


def _life(reply: Reply) -> Text:
    text = shade(reply.life)
    if reply.life == Life.LOADING:
        return text.append(": model and images")
    text.append(f", round {rounds(reply.round, reply.rounds_max, ' of ')}, {reply.phase}")
    if reply.steps:
        text.append(f" (step {reply.step} of {reply.steps})")
    if reply.alone:
        text.append("; no peer answers: it goes on alone", "yellow")
    return text


def _facts(reply: Reply) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if reply.metrics:
        found.append(("last round", figures(reply.metrics)))
    if reply.measured and not reply.measured.keys() <= reply.metrics.keys():
        found.append(("as measured", figures(reply.measured)))
    if reply.best_round:
        best = f"round {reply.best_round}, validation {100 * reply.best_validation:.1f} %"
        found.append(("best", best))
    if reply.classes:
        names = list(reply.classes)
        more = f" and {len(names) - CLASSES_SHOWN} more" if len(names) > CLASSES_SHOWN else ""
        shown = ", ".join(names[:CLASSES_SHOWN]) + more
        found.append(("data", f"{reply.samples} training images of {shown}"))
    model = reply.model + (f" ({reply.backbone[:12]})" if reply.backbone else "")
    found.append(("model", model))
    found += sorted(reply.shown.items())
    if reply.refused:
        counts = (f"{reply.refused[key]} ({key})" for key in sorted(reply.refused))
        found.append(("refused", ", ".join(counts)))
    return found


def figures(metrics: Mapping[str, float]) -> str:
    """Return loss and accuracies in a fixed order, then all other metrics."""
    order = ["loss", *SPLITS]
    rest = sorted(key for key in metrics if key not in order)
    parts = []
    for key in (*(key for key in order if key in metrics), *rest):
        share = key in SPLITS or key.startswith(ZERO_SHOT)
        value = f"{100 * metrics[key]:.1f} %" if share else f"{metrics[key]:.4g}"
        parts.append(f"{key.replace('_', ' ')} {value}")
    return ", ".join(parts)


def _peers(peers: Sequence[status_pb2.Peer]) -> Table:
    titles = columns(peers)
    names = ("peer", "address", "state", "round", *titles, "heard", "sent", "received")
    table = grid(*names, numbers={*NUMBERS, *titles})
    reasons = any(peer.reason for peer in peers)
    if reasons:
        table.add_column("why", overflow="fold")
    for peer in peers:
        table.add_row(
            peer.name,
            peer.address,
            shade(peer.state),
            str(peer.round),
            *(peer.shown.get(title, "") for title in titles),
            f"{duration(peer.heard_s)} ago" if peer.heard_s >= 0 else "never",
            size(peer.traffic.serialized_out),
            size(peer.traffic.serialized_in),
            *([Text(peer.reason)] if reasons else []),
        )
    return table


def _traffic(traffic: status_pb2.Traffic) -> Table:
    table = grid("", "messages", "tensors", "serialized", "on the wire (estimate)")
    for title, way in (("sent", "out"), ("received", "in")):
        counts = [getattr(traffic, f"{kind}_{way}") for kind in ("payload", "serialized", "wire")]
        messages = f"{getattr(traffic, f'messages_{way}'):,}"
        table.add_row(Text(title, "dim"), messages, *(size(count) for count in counts))
    return table


class Grid(Table):
    """A table that shows texts as they are: rich interprets no markup in them."""

    def add_column(self, header: RenderableType = "", *given: Any, **more: Any) -> None:
        """Add a column whose header is shown as it is."""
        super().add_column(_literal(header), *given, **more)

    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:
        """Add a row whose texts are shown as they are."""
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


def shade(text: str) -> Text:
    """Return the name of a state in its colour."""
    return Text(text, STYLES.get(text, ""))


def rounds(done: int, most: int, between: str = "/") -> str:
    """Return the number of rounds done, and the total if there is one."""
    return f"{done}{between}{most}" if most else str(done)
