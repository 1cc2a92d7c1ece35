"""Nodes as processes of their own that speak JSON lines with the program that started them.

This module runs in the environments of the rivals, so it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

INTERFACE: Final = Path("/proc/net/dev")
KEPT: Final = 2000
"""Characters of a child's standard error that an error shows."""


class ChildError(Exception):
    """A child ended or did not answer in time."""


class Child:
    """A process in a session of its own; `tell` writes a line to it, `take` reads its lines."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                with contextlib.suppress(ValueError):
                    self._lines.put(json.loads(line))

    def tell(self, **said: Any) -> None:
        """Write one JSON line to the child; ChildError if the child has ended."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(said) + "\n")
            self.process.stdin.flush()
        except OSError:
            raise ChildError(f"a node ended: {self.tail()}") from None

    def take(self, event: str, deadline: float) -> dict[str, Any]:
        """Return the next line with this `event`, and drop the lines before it.

        deadline: in seconds of time.monotonic(). Raises ChildError after it, or if the child ends.
        """
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ChildError(f"no '{event}' of a node in time: {self.tail()}")
            try:
                said = self._lines.get(timeout=min(left, 0.5))
            except queue.Empty:
                if self.process.poll() is not None and self._lines.empty():
                    raise ChildError(f"a node ended: {self.tail()}") from None
                continue
            if said.get("event") == event:
                return said

    def tail(self) -> str:
        """Return the last line that the child wrote to its standard error."""
        lines = self._log.read_text("utf-8", "replace")[-KEPT:].strip().splitlines()
        return lines[-1] if lines else "it wrote no error"

    def kill(self) -> None:
        """Send SIGKILL to the child and to the processes of its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Children(contextlib.ExitStack):
    """A context that kills every child at its end."""

    def start(self, command: Sequence[str], log: Path) -> Child:
        """Start one more child; log: gets its standard error."""
        child = Child(command, log)
        self.callback(child.kill)
        return child


def say(event: str, **more: Any) -> None:
    """Print one JSON line to the parent, with the time of the machine's monotonic clock."""
    line = json.dumps({"event": event, "at": time.monotonic(), **more})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def listen(answers: dict[str, Callable[[dict[str, Any]], None]]) -> None:
    """Answer the parent's lines by their "do"; end the process when the parent closes the pipe."""
    for line in sys.stdin:
        said = json.loads(line)
        answers[said["do"]](said)
    os._exit(0)  # threads of a rival may wait for minutes


def interface_bytes() -> int:
    """Return the bytes that the loopback interface of this network namespace has sent."""
    for line in INTERFACE.read_text("ascii").splitlines():
        name, _, rest = line.partition(":")
        if name.strip() == "lo":
            return int(rest.split()[8])
    raise ChildError("this network namespace has no loopback interface")
