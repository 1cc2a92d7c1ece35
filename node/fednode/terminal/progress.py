"""Show on standard error how far a command is: a live bar on a terminal, else a line at times.

Standard output belongs to the command's results. Nothing is shown of work that takes less than
FIRST_S, so a quick command prints no more than its results.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from fednode.observe.working import SAY_EVERY_S, Working

FIRST_S: Final = 2.0
"""Seconds that a command works before it shows how far it is."""
REFRESH_S: Final = 0.2


class Shown:
    """Shows work; a context manager, called as fednode.data.base.ProgressFn by any thread."""

    def __init__(
        self,
        kept: str,
        console: Console | None = None,
        first_s: float = FIRST_S,
        every_s: float = SAY_EVERY_S,
    ) -> None:
        """Set up.

        kept: the sentence that Ctrl-C is answered with: what was kept, and how to go on. console:
        on standard error if it is not given.
        """
        self.kept = kept
        self._console = console or Console(stderr=True)
        self._first_s, self._every_s = first_s, every_s
        self._working = Working()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._bar: Progress | None = None
        self._watcher = threading.Thread(target=self._watch, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._watcher.join()
        self._close()
        if kind is KeyboardInterrupt:
            raise KeyboardInterrupt(self.kept) from None

    def __call__(self, name: str, done: int, count: int) -> None:
        """Take what is under way, how many images are done, and of how many."""
        self._working(name, done, count)

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Take the bar away while the command prints results."""
        with self._lock:
            self._close()
            yield

    def _watch(self) -> None:
        wait = self._first_s
        while not self._over.wait(wait):
            with self._lock:
                self._show()
            wait = REFRESH_S if self._console.is_terminal else self._every_s

    def _show(self) -> None:
        work = self._working.work()
        if not self._console.is_terminal:
            if work is not None:
                click.echo(f"fednode: {work}", err=True)
            return
        if work is None:
            self._close()
            return
        if self._bar is None:
            self._bar = Progress(
                *(SpinnerColumn(), TextColumn("{task.description}"), BarColumn()),
                console=self._console,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._bar.add_task("")
            self._bar.start()
        self._bar.update(
            self._bar.task_ids[0],
            description=str(work),
            completed=work.done,
            total=work.count or None,
        )

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
