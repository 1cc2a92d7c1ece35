"""The thread on which a node tunes and compares: one job at a time.

What it works with is a Learning. A settings document replaces the Learning of a running node,
between two rounds, when no job is under way.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fednode.core import events as ev
from fednode.core.types import Job, Progress
from fednode.errors import FednodeError
from fednode.learn.comparison import Verdict
from fednode.learn.learner import Cancelled, Learner
from fednode.observe.telemetry import Telemetry
from fednode.runtime.changes import Remember, Watched, ended
from fednode.wire.codec import Dtype

Compare = Callable[[Callable[[], bool]], Verdict | None]
"""Return what a node gains from the mesh, None if nothing changed; raise Cancelled if told to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """What a node tunes and compares with.

    dtype: number format of its messages. remember: stores class names. compare: None if nothing is
    compared; compares: tells whether to compare after a record. spend: counts releases of the
    node's key elsewhere. gains: what status says until the comparison is there.
    """

    learner: Learner
    dtype: Dtype = "float32"
    remember: Remember | None = None
    compare: Compare | None = None
    compares: Callable[[ev.Record], bool] = ended
    spend: Callable[[int, str], None] | None = None
    gains: tuple[str, ...] = ()


class Worker:
    """One thread, and the work that it does.

    progress: how far the running tuning is; None if no tuning runs.
    """

    def __init__(self, learning: Learning, telemetry: Telemetry) -> None:
        self.progress: Progress | None = None
        self._telemetry = telemetry
        self._thread = ThreadPoolExecutor(1, "tune")
        self._cancel, self._tunings = threading.Event(), 0
        self.take(learning)

    def take(self, learning: Learning) -> None:
        """Work with this from the next job on."""
        self.learning = learning
        self._watched = Watched(learning.learner, learning.remember)

    def cancel(self) -> None:
        """End the job under way at its next step, and each later one."""
        self._cancel.set()

    def close(self) -> None:
        """Wait for the job under way; take no other."""
        self._thread.shutdown()

    async def tune(self, job: Job) -> ev.Event:
        """Tune; return the event that says how it ended."""
        loop = asyncio.get_running_loop()
        self._tunings += 1
        try:
            report, changes = await loop.run_in_executor(
                self._thread, self._watched.tune, job, self._cancel.is_set, self._note
            )
        except Cancelled:
            event: ev.Event = ev.TuneFailed(job, "the tuning was cancelled")
        except FednodeError as fault:
            event = ev.TuneFailed(job, str(fault))
        except Exception as fault:  # a learner's defect must not end the node
            event = ev.TuneFailed(job, f"the learner failed: {type(fault).__name__}: {fault}")
        else:
            event = ev.Tuned(job, report)
            self._telemetry.tuned(job, report)
            for change in changes:
                self._telemetry.record(change)
        self._tunings -= 1
        self.progress = None
        return event

    def compares(self, record: ev.Record) -> bool:
        """Tell whether a comparison with the control is due after a record."""
        return self.learning.compare is not None and self.learning.compares(record)

    async def compare(self) -> None:
        """Compare with the control; a tuning that is due ends this at once."""
        loop, learning = asyncio.get_running_loop(), self.learning
        assert learning.compare is not None
        self._telemetry.comparing = True
        try:
            verdict = await loop.run_in_executor(
                self._thread, learning.compare, lambda: self._ends(learning)
            )
        except Cancelled:
            self._telemetry.comparing = False
            return  # the node compares after its next last round
        except Exception as fault:  # a defect must not end the node
            text = f"whether the mesh helps is unknown: {type(fault).__name__}: {fault}"
            verdict = Verdict([text])
        self._telemetry.comparing = False
        if verdict is not None:
            self._telemetry.compared(verdict)

    def _ends(self, learning: Learning) -> bool:
        return self._cancel.is_set() or self._tunings > 0 or self.learning is not learning

    def _note(self, progress: Progress) -> None:
        self.progress = progress
