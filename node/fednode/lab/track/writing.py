"""Write runs to a tracker: each round once, each call within a bound.

    rounds ==> Writer ==> thread ==> tracker ==> note of what the run holds

A tracker may raise or wait for ever. Its calls run one after another in one thread, which does not
keep the process alive; the command waits for each call at most LIMIT_S. A run's *note*, a file
beside the tracker's own files, names the last round that the tracker took. It is written right
after the round, so a command that is started again goes on behind it. If the process is killed
between the two, the tracker gets that one round a second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from fednode.core import foreign
from fednode.errors import FednodeError, Refused, Unreachable
from fednode.lab.track.base import Run, Tracker, finite, note_file
from fednode.lab.track.trackers import Shipped
from fednode.storage.files import put

LIMIT_S: Final = 120.0
"""Most seconds that one call of a tracker may take: W&B and MLflow take some to begin a run."""
LAST_S: Final = 8.0
"""The same for the calls after Ctrl-C or a fault."""
Value = TypeVar("Value")
Say = Callable[[str], None]
"""Take a sentence for a person."""


@dataclass(frozen=True, slots=True)
class Note:
    """The rounds that a tracker has of a run. last: the newest; digest: of what it adopted."""

    last: int = -1
    digest: str = ""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the note in a file; an empty one if there is none."""
        try:
            tree = json.loads(path.read_text("utf-8"))
            return cls(int(tree["last"]), str(tree["digest"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls()


class Patient:
    """Make a tracker's calls one after another, in a thread of their own."""

    def __init__(self, title: str, limit_s: float = LIMIT_S) -> None:
        self._title, self._limit_s = title, limit_s
        self._waiting: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]]
        self._waiting = queue.SimpleQueue()
        self.fails = self._busy = False
        threading.Thread(target=self._work, name="tracker", daemon=True).start()

    @property
    def broken(self) -> bool:
        """Whether a call failed or has not returned: then exit handlers may wait for ever, too."""
        return self.fails or self._busy

    async def call(self, work: Callable[[], Value], limit_s: float = math.inf) -> Value:
        """Return what the work returns.

        Raise Refused if the work raises anything, Unreachable if it takes longer than the bound.
        """
        limit_s = min(limit_s, self._limit_s)
        future: Future[Value] = Future()
        self._waiting.put((future, work))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), limit_s)
        except TimeoutError:
            self.fails = True
            raise Unreachable(
                f"{self._title} did not take figures within {limit_s:g} s. Start the same "
                "command again later: it goes on where it stopped."
            ) from None

    def _work(self) -> None:
        while True:
            future, work = self._waiting.get()
            if not future.set_running_or_notify_cancel():
                continue
            self._busy = True
            try:
                result = work()
            except FednodeError as fault:
                self._busy = False
                future.set_exception(fault)
            except BaseException as fault:  # a tracker may raise anything, SystemExit too
                self._busy, self.fails = False, True
                why = foreign.line(f"{type(fault).__name__}: {fault}").rstrip(".")
                future.set_exception(Refused(f"{self._title} does not take figures: {why}."))
            else:
                self._busy = False
                future.set_result(result)


class Writer:
    """One run in a tracker; an async context manager. where: tells a person where the run is."""

    def __init__(self, shipped: Shipped, patient: Patient, run: Run) -> None:
        self._shipped, self._patient, self._run = shipped, patient, run
        self._file = note_file(run, shipped.package)
        self._tracker: Tracker | None = None
        self.where = ""
        self.note = Note.read(self._file)

    @property
    def broken(self) -> bool:
        """Whether the tracker failed, so that no call can follow."""
        return self._patient.broken

    async def __aenter__(self) -> Self:
        """Begin the run, or continue it."""

        def begin() -> tuple[Tracker, str]:
            tracker = self._shipped.load()(self._run)
            return tracker, foreign.line(tracker.where)

        self._tracker, where = await self._patient.call(begin)
        self.where = f"{self._shipped.title}: {where}"
        self.note = Note.read(self._file)  # a run that the tracker lost begins anew
        return self

    async def __aexit__(self, kind: object, fault: BaseException | None, trace: object) -> None:
        """End the run; all that was written is kept."""
        assert self._tracker is not None, "the run is open"
        if fault is None:
            await self._patient.call(self._tracker.close)
        elif not self._patient.fails:
            with contextlib.suppress(FednodeError):
                await self._patient.call(self._tracker.close, LAST_S)

    async def log(self, number: int, values: Mapping[str, Any], digest: str = "") -> None:
        """Write the finite figures of a round; a round that is written already is left out."""
        tracker, note = self._tracker, Note(number, digest)
        assert tracker is not None, "the run is open"
        if number <= self.note.last:
            return
        finite_values = finite(values)

        def write() -> None:
            if finite_values:
                tracker.log(number, finite_values)
            self._keep(note)

        await self._patient.call(write)
        self.note = note

    async def tables(self, paths: Iterable[Path], digest: str) -> None:
        """Write files; digest: of all their texts."""
        tracker, note = self._tracker, Note(0, digest)
        assert tracker is not None, "the run is open"

        def write() -> None:
            for path in paths:
                tracker.table(path)
            self._keep(note)

        await self._patient.call(write)
        self.note = note

    def _keep(self, note: Note) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        put(self._file, json.dumps(asdict(note)), "folder with --folder", for_all=True)
