"""Show a mesh while it runs: the live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from fednode.core.life import Life
from fednode.terminal import live
from fednode.terminal.live import Past, Seen
from fednode.terminal.show import rounds
from fednode_bootstrap.mesh import LocalMesh

LINE_EVERY_S: Final = 5.0
HURRY_EVERY_S: Final = 0.1
Result = TypeVar("Result")


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

    def seen(self, mesh: LocalMesh) -> list[Seen]:
        """Return the nodes of a mesh as they are now."""
        return [
            Seen(one.name, one.state, one.status, self._past.get(one.name, Past()))
            for one in mesh.members.values()
        ]

    def _note(self, mesh: LocalMesh) -> None:
        for one in mesh.members.values():
            if one.answers and one.status is not None:
                self._past.setdefault(one.name, Past()).note(one.status, time.monotonic())

    def _render(self) -> RenderableType:
        head = Text(self._headline(), style="bold")
        return head if self._mesh is None else live.page(head, self.seen(self._mesh))

    def _print_line(self) -> None:
        """Print one line when enough time went by and something is new."""
        now = time.monotonic()
        line = " | ".join(part for part in (self._headline(), summary(self._mesh)) if part)
        if line != self._printed and now >= self._printed_at + self._line_every_s:
            self._printed, self._printed_at = line, now
            self._console.print(Text(line))


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
        parts.append(f"{member.name} {text}")
    return ", ".join(parts)


class Interrupted(Exception):
    """The user asked to stop (Ctrl-C, SIGTERM or SIGHUP)."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"stopped by {number.name}")
        self.exit_code = 128 + number


class Stop:
    """What the user asked for by signals: to stop, and then to hurry."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.asked: asyncio.Future[Interrupted] = loop.create_future()
        self.hurry: asyncio.Future[None] = loop.create_future()


@contextlib.contextmanager
def interruptible(say: Callable[[str], None]) -> Iterator[Stop]:
    """Take over Ctrl-C, SIGTERM and SIGHUP: the first asks to stop, the second to hurry."""
    loop = asyncio.get_running_loop()
    stop = Stop()

    def take(number: signal.Signals) -> None:
        if not stop.asked.done():
            say("Ending all daemons; ask again to end them at once.")
            stop.asked.set_result(Interrupted(number))
        elif not stop.hurry.done():
            stop.hurry.set_result(None)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, take, number)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number] or signal.SIG_DFL)


async def until(work: Coroutine[Any, Any, Result], stop: Stop) -> Result:
    """Return what the work returns; when the user asks to stop, cancel it and raise Interrupted.

    When the user asks to hurry while the work ends, it is cancelled again until it is done.
    """
    task = asyncio.create_task(work)
    try:
        await _first_of(task, stop.asked)
        if task.done():
            return task.result()
        task.cancel()
        await _first_of(task, stop.hurry)
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=HURRY_EVERY_S)
    raise stop.asked.result()


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
