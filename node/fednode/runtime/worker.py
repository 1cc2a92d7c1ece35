"""The thread on which a node tunes: one job at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fednode.core import events as ev
from fednode.core.types import Dtype, Job, Progress
from fednode.errors import FednodeError
from fednode.learn.learner import Cancelled, Learner, Release
from fednode.observe.telemetry import Telemetry
from fednode.runtime.changes import Remember, Watched


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """What a node tunes with.

    dtype: number format of its messages. remember: stores class names. release: clips reports and
    adds noise. spend: counts releases of the node's key elsewhere.
    """

    learner: Learner
    dtype: Dtype = "float32"
    remember: Remember | None = None
    release: Release | None = None
    spend: Callable[[int, str], None] | None = None


class Worker:
    """One thread, and the work that it does.

    progress: how far the running tuning is; None if no tuning runs.
    """

    def __init__(self, learning: Learning, telemetry: Telemetry) -> None:
        self.progress: Progress | None = None
        self._telemetry = telemetry
        self._thread = ThreadPoolExecutor(1, "tune")
        self._cancel = threading.Event()
        self.learning = learning
        self._watched = Watched(learning.learner, learning.remember, learning.release)

    def cancel(self) -> None:
        """End the job under way at its next step, and each later one."""
        self._cancel.set()

    def close(self) -> None:
        """Wait for the job under way; take no other."""
        self._thread.shutdown()

    async def tune(self, job: Job) -> ev.Event:
        """Tune; return the event that says how it ended."""
        loop = asyncio.get_running_loop()
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
            self._tell(changes)
        self.progress = None
        return event

    def look(self) -> None:
        """Tell what is to be said of the images before the first job."""
        self._tell(self._watched.changes())

    def _tell(self, changes: Sequence[ev.Record]) -> None:
        for change in changes:
            self._telemetry.record(change)

    def _note(self, progress: Progress) -> None:
        self.progress = progress
