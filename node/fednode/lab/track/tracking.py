"""Pass on what happens to a tracker, without ever waiting for it.

    log, table ==> queue ==> thread ==> pipe ==> process (node/fednode/lab/track/worker.py) ==>
    tracker

The tracker runs in a process of its own: it cannot stop or slow this one, whatever it does and
whatever its threads and exit handlers do. The queue is bounded; figures that find it full are
dropped. Each trouble is told once. `close` takes no longer than it was given, and ends the process.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal

from fednode.errors import ConfigError
from fednode.lab.track.base import Run, finite

Kind = Literal["tensorboard", "wandb", "mlflow"]
CLOSE_S: Final = 8.0
"""Most seconds by which a tracker delays the end of a node: less than the 10 s of containers."""
QUEUED_MAX: Final = 10_000
"""Most lines that wait for the tracker: a few megabytes."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """A tracker that fednode knows. place: MODULE:CLASS. package: what it needs."""

    title: str
    place: str
    package: str


TRACKERS: Final[Mapping[Kind, Shipped]] = {
    "tensorboard": Shipped(
        "TensorBoard", "fednode.lab.track.tensorboard:TensorBoard", "tensorboardX"
    ),
    "wandb": Shipped("Weights & Biases", "fednode.lab.track.wandb:Wandb", "wandb"),
    "mlflow": Shipped("MLflow", "fednode.lab.track.mlflow:Mlflow", "mlflow"),
}


def shipped(kind: Kind) -> Shipped:
    """Return a tracker by its name; raise ConfigError if its package is not installed."""
    found = TRACKERS[kind]
    spec = importlib.util.find_spec(found.package)
    if spec is None or spec.origin is None:  # a folder of that name is no package
        raise ConfigError(
            f"The tracker {kind} needs the package {found.package}, which is not installed: run "
            f"pip install 'fednode[{kind}]', or leave the tracker out."
        )
    return found


class Tracking:
    """One tracker process, and the runs in it, one after another."""

    def __init__(
        self,
        tracker: Shipped,
        say: Callable[[str], None],
        warn: Callable[[str], None],
        queued_max: int = QUEUED_MAX,
    ) -> None:
        """Start the process.

        say, warn: get sentences, in other threads. queued_max: most lines that wait.
        """
        self._title, self._say, self._warn = tracker.title, say, warn
        self._lines: queue.Queue[str | None] = queue.Queue(queued_max)
        self._dropped = 0
        self._broken = self._closed = self._warned = False
        self._threads: list[threading.Thread] = []
        self._process: subprocess.Popen[str] | None = None
        try:
            self._process = self._started(tracker.place)
        except OSError as fault:
            self._broken = True
            self._trouble(f"its process cannot be started ({fault.strerror})")

    def begin(self, run: Run) -> None:
        """Begin a run, or continue the run of this name."""
        self._put("begin", {**asdict(run), "folder": str(run.folder)})

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """Pass on the finite numbers among the figures of a step."""
        found = finite(values)
        if found:
            self._put("log", step, found)

    def table(self, path: Path) -> None:
        """Pass on a file, which must stay as it is until `close` has returned."""
        self._put("table", str(path))

    def end(self) -> None:
        """End the run; another one may begin."""
        self._put("end")

    def close(self, limit_s: float = CLOSE_S) -> None:
        """End the run and the process, within so many seconds. Idempotent."""
        if self._closed or self._process is None:
            return
        self._closed = True
        until = time.monotonic() + limit_s
        with contextlib.suppress(queue.Full, subprocess.TimeoutExpired):
            self._lines.put(None, timeout=limit_s)
            self._process.wait(max(0.0, until - time.monotonic()))
        if self._process.poll() is None:
            self._warn(
                f"{self._title} had not taken all figures within {limit_s:g} s after the end: its "
                "process was ended, and the last figures may be missing there."
            )
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for thread in self._threads:
            thread.join(max(0.1, until - time.monotonic()))
        if self._dropped:
            self._warn(f"{self._title} was too slow: {self._dropped} lines of figures are missing.")

    def _started(self, place: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fednode.lab.track.worker", place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is for the node; and `close` ends all that it started
        )
        assert process.stdin is not None, "it is a pipe"
        assert process.stdout is not None, "it is a pipe"
        for target, pipe in ((self._feed, process.stdin), (self._listen, process.stdout)):
            thread = threading.Thread(target=target, args=(pipe,), name="tracker", daemon=True)
            thread.start()
            self._threads.append(thread)
        return process

    def _put(self, *parts: Any) -> None:
        if self._broken or self._closed:
            return
        try:
            self._lines.put_nowait(json.dumps(parts))
        except queue.Full:
            self._dropped += 1
            if self._dropped == 1:
                self._warn(f"{self._title} is too slow: some figures are not passed on.")

    def _feed(self, pipe: IO[str]) -> None:
        """Write lines to the process; its input ends with the last one."""
        try:
            with pipe:
                while (line := self._lines.get()) is not None:
                    pipe.write(line + "\n")
                    pipe.flush()
        except OSError:
            self._broken = True
            if not self._closed:
                self._trouble("its process ended")

    def _listen(self, pipe: IO[str]) -> None:
        """Tell what the process answers, each text once."""
        told: set[str] = set()
        with pipe:
            for line in pipe:
                answer = json.loads(line)
                if "fault" in answer:
                    self._trouble(answer["fault"])
                elif answer["where"] not in told:
                    told.add(answer["where"])
                    self._say(f"{self._title}: {answer['where']}")

    def _trouble(self, reason: str) -> None:
        """Warn that the tracker fails, once: the node and its rounds go on without it."""
        if not self._warned:
            self._warned = True
            self._warn(f"{self._title} does not take figures: {reason.rstrip('.')}.")
