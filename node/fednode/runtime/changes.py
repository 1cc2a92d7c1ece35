"""Notice that a learner's images changed while the node runs: say so, and store the new classes.

Classes of too few images are named at the start, and again when others have too few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from fednode.core.events import Level, Record
from fednode.core.types import Job, Progress, Report
from fednode.errors import FednodeError
from fednode.learn.learner import Learner, Release, released

NAMED: Final = 5
ALL_SENT: Final = "Each class has enough training images now, so that all means are sent."
Remember = Callable[[tuple[str, ...]], None]
"""Write class names into the state directory; raise FednodeError if that fails."""


class Watched:
    """Tune, and compare the classes and the number of training images with those before."""

    def __init__(
        self, learner: Learner, remember: Remember | None = None, release: Release | None = None
    ) -> None:
        self._learner, self._remember, self._release = learner, remember, release
        self._classes, self._samples = learner.classes, learner.samples
        self._stored, self._unsent = True, ""

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> tuple[Report, list[Record]]:
        """Return the report that the node may use, and what changed since the last call.

        Call `remember` if the classes changed; if it fails, the next call tries again. Raise what
        the learner raises.
        """
        report = released(self._learner, self._release, job, cancelled, progress)
        return report, self.changes()

    def changes(self) -> list[Record]:
        """Return what changed since the last call; the first call tells of classes not sent."""
        records: list[Record] = []
        classes, samples = self._learner.classes, self._learner.samples
        if classes != self._classes:
            records.append(Record("data.classes", _classes_text(self._classes, classes, samples)))
            self._stored = False
        elif samples != self._samples:
            text = f"The images changed: {samples} training images now, {self._samples} before."
            records.append(Record("data.images", text))
        self._classes, self._samples = classes, samples
        if (text := self._learner.unsent) != self._unsent:
            level: Level = "warning" if text else "info"
            records.append(Record("data.unsent", text or ALL_SENT, level))
            self._unsent = text
        if not self._stored and self._remember is not None:
            try:
                self._remember(classes)
            except FednodeError as fault:
                return [*records, Record("state.failed", str(fault), "error")]
        self._stored = True
        return records


def _classes_text(before: Sequence[str], now: Sequence[str], samples: int) -> str:
    came = [name for name in now if name not in before]
    gone = [name for name in before if name not in now]
    parts = [f"{len(now)} now, {len(before)} before"]
    parts += [f"new: {_named(came)}"] if came else []
    parts += [f"gone: {_named(gone)}"] if gone else []
    return f"The classes of the images changed: {'; '.join(parts)}. Training images: {samples}."


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
