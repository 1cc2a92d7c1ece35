"""The thread on which a node tunes, one job at a time, and what changed in the images meanwhile.

Classes of too few images are named at the start, and again when others have too few.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from fednode.core import events as ev
from fednode.core.types import Dtype, Job, Progress, Report
from fednode.errors import FednodeError
from fednode.learn.learner import Cancelled, Learner, Release, released
from fednode.observe.telemetry import Telemetry
from fednode.units import listed

NAMED: Final = 5
ALL_SENT: Final = "Each class has enough training images now, so that all means are sent."


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """What a node tunes with.

    dtype: number format of its messages. remember: writes class names into the state directory, or
    raises FednodeError. release: clips reports and adds noise. spend: counts releases of the node's
    key elsewhere.
    """

    learner: Learner
    dtype: Dtype = "float32"
    remember: Callable[[tuple[str, ...]], None] | None = None
    release: Release | None = None
    spend: Callable[[int, str], None] | None = None


class Worker:
    """One thread, and the work that it does.

    progress: how far the running tuning is; None if no tuning runs.
    """

    def __init__(self, learning: Learning, telemetry: Telemetry) -> None:
        self.learning, self._telemetry = learning, telemetry
        self.progress: Progress | None = None
        self._thread = ThreadPoolExecutor(1, "tune")
        self._cancel = threading.Event()
        self._classes, self._samples = learning.learner.classes, learning.learner.samples
        self._stored, self._unsent = True, ""

    def cancel(self) -> None:
        """End the job under way at its next step, and each later one."""
        self._cancel.set()

    def close(self) -> None:
        """Wait for the job under way; take no other."""
        self._thread.shutdown()

    async def tune(self, job: Job) -> ev.Event:
        """Tune, and tell what changed in the images; return the event that says how it ended."""
        loop = asyncio.get_running_loop()
        try:
            report, changes = await loop.run_in_executor(self._thread, self._work, job)
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
        self._tell(self._changes())

    def _tell(self, changes: Sequence[ev.Record]) -> None:
        for change in changes:
            self._telemetry.record(change)

    def _note(self, progress: Progress) -> None:
        self.progress = progress

    def _work(self, job: Job) -> tuple[Report, list[ev.Record]]:
        """Return the report that the node may use, and what changed in the images."""
        learning, cancelled = self.learning, self._cancel.is_set
        report = released(learning.learner, learning.release, job, cancelled, self._note)
        return report, self._changes()

    def _changes(self) -> list[ev.Record]:
        """Return what changed since the last call; the first call tells of classes not sent.

        If the classes changed, they are stored; if that fails, the next call tries again.
        """
        records: list[ev.Record] = []
        learner, remember = self.learning.learner, self.learning.remember
        classes, samples = learner.classes, learner.samples
        if classes != self._classes:
            records.append(
                ev.Record("data.classes", _classes_text(self._classes, classes, samples))
            )
            self._stored = False
        elif samples != self._samples:
            text = f"the images changed: {samples} for training now, {self._samples} before"
            records.append(ev.Record("data.images", text))
        self._classes, self._samples = classes, samples
        if (text := learner.unsent) != self._unsent:
            level: ev.Level = "warning" if text else "info"
            records.append(ev.Record("data.unsent", text or ALL_SENT, level))
            self._unsent = text
        if not self._stored and remember is not None:
            try:
                remember(classes)
            except FednodeError as fault:
                return [*records, ev.Record("state.failed", str(fault), "error")]
        self._stored = True
        return records


def _classes_text(before: Sequence[str], now: Sequence[str], samples: int) -> str:
    came = [name for name in now if name not in before]
    gone = [name for name in before if name not in now]
    parts = [f"{len(now)} now, {len(before)} before"]
    parts += [f"new: {listed(came, NAMED)}"] if came else []
    parts += [f"gone: {listed(gone, NAMED)}"] if gone else []
    return f"The classes of the images changed: {'; '.join(parts)}. Training images: {samples}."
