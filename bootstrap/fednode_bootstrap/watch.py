"""Show a mesh while it runs: the live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from fednode.core.view import Life
from fednode.terminal.show import figures, merged, rounds
from fednode_bootstrap import live
from fednode_bootstrap.live import LiveNode, Past
from fednode_bootstrap.mesh import LocalMesh

LINE_EVERY_S: Final = 5.0


class View:
    """Print a mesh to a console; a context manager.

    headline: called for the line above the table (what runs, how far, time left).
    """

    def __init__(
        self, console: Console, headline: Callable[[], str], line_every_s: float = LINE_EVERY_S
    ) -> None:
        self._console = console
        self._headline = headline
        self._line_every_s = line_every_s
        self._mesh: LocalMesh | None = None
        self._past: dict[str, Past] = {}
        self._printed_at = float("-inf")
        self._printed = ""
        self._live = Live(
            console=console, refresh_per_second=4, get_renderable=self._render, transient=True
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.__exit__(kind, error, trace)

    def event(self, text: str) -> None:
        """Print what happened, above the table where there is one."""
        self._console.print(Text(text))

    async def follow(self, mesh: LocalMesh) -> None:
        """Show a mesh at each change until cancelled."""
        self._mesh = mesh
        try:
            while True:
                self._note(mesh)
                if not self._console.is_terminal:
                    self._print_line()
                await mesh.change()
        finally:
            self._mesh = None

    def seen(self, mesh: LocalMesh) -> list[LiveNode]:
        """Return the nodes of a mesh as they are now."""
        return [
            LiveNode(member.name, member.state, member.status, self._past.get(member.name, Past()))
            for member in mesh.members.values()
        ]

    def _note(self, mesh: LocalMesh) -> None:
        for member in mesh.members.values():
            if member.answers and member.status is not None:
                self._past.setdefault(member.name, Past()).note(member.status, time.monotonic())

    def _render(self) -> RenderableType:
        head = Text(self._headline(), style="bold")
        return head if self._mesh is None else live.page(head, self.seen(self._mesh))

    def _print_line(self) -> None:
        """Print one line when enough time went by and something is new."""
        now = time.monotonic()
        line = " | ".join(part for part in (self._headline(), summary(self._mesh)) if part)
        if line != self._printed and now >= self._printed_at + self._line_every_s:
            self._printed, self._printed_at = line, now
            self._console.print(Text(line), soft_wrap=True)


def summary(mesh: LocalMesh | None) -> str:
    """Return a mesh in one line: each node's round, and its state where that is not running."""
    if mesh is None:
        return ""
    parts = []
    for member in mesh.members.values():
        status = member.status
        known = status is not None and status.life != Life.LOADING
        text = rounds(status.round, status.rounds_max) if status and known else ""
        if member.state != "running":
            text = f"{text} {member.state}".strip()
        if known and status is not None and member.state == Life.FINISHED:
            text += f" (merged {merged(status)})" if merged(status) else ""
        parts.append(f"{member.name} {text}")
    return ", ".join(parts)


def accuracies(mesh: LocalMesh) -> list[str]:
    """Return the latest accuracies of each node."""
    return [
        f"{member.name}: {figures(member.status.measured)}"
        for member in mesh.members.values()
        if member.status is not None and member.status.measured
    ]
