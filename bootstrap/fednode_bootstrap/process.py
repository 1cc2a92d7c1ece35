"""One daemon as a child process: started, watched, stopped, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from fednode_bootstrap.forks import Fork

PROGRAM: Final = "fednode.cli"
TETHERED: Final = (sys.executable, "-m", "fednode_bootstrap.tether")
"""Before a module's name: run the module so that it ends with this process."""
FEDNODE: Final = (*TETHERED, PROGRAM)
TAIL_BYTES: Final = 8192


Process = asyncio.subprocess.Process | Fork
Launch = Callable[[Sequence[str], Path], Awaitable[Process]]
"""Start a process from its command line, with its output appended to a log."""


async def execute(command: Sequence[str], log: Path) -> Process:
    """Start a program in a session of its own."""
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )


class Daemon:
    """A child process in its own session, with its output in a log file.

    Ctrl-C in the terminal does not reach other sessions. So only the mesh gets it, and ends its
    daemons in order. command: what `launch` starts.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, launch: Launch = execute
    ) -> None:
        self.name = name
        self.command = tuple(command)
        self.log = log
        self._launch = launch
        self._process: Process | None = None
        self._before = 0

    @property
    def pid(self) -> int | None:
        """Process id while the process runs."""
        return self._process.pid if self._process and self.running else None

    @property
    def started(self) -> bool:
        """Tell whether the process was ever started."""
        return self._process is not None

    @property
    def running(self) -> bool:
        """Tell whether the process was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def exit_code(self) -> int | None:
        """Exit status after the process ended; a negative number is the signal that ended it."""
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        """Start the process, also after it has ended; output is appended to the log."""
        if self.running:
            return
        with self.log.open("ab") as output:
            self._before = output.tell()
        self._process = await self._launch(self.command, self.log)

    async def ended(self) -> int:
        """Wait for the process to end; return its exit status."""
        if self._process is None:
            raise RuntimeError(f"'{self.name}' was never started")
        return await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; do nothing if the process has ended."""
        if self._process is not None and self.running:
            # asyncio's send_signal polls the process. If the process has ended, the poll takes the
            # exit status away from asyncio's own watcher.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def stop(self, grace_s: float) -> None:
        """End the process: SIGTERM, and SIGKILL if it still runs after grace_s."""
        if self._process is None:
            return
        try:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), grace_s)
        finally:
            if self.running:  # out of time, or cancelled
                self.signal(signal.SIGKILL)
            await asyncio.shield(self._process.wait())

    def last_line(self) -> str:
        """Return the last line that this run of the process wrote; "" if there is none."""
        try:
            with self.log.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._before, end - TAIL_BYTES))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def how_it_ended(exit_code: int) -> str:
    """Describe an exit status in words."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"signal {-exit_code}"
