"""The learner's contract: blocking, off the event loop, and stateless between calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from node.core.types import Job, Progress, Report, Tensors


class Learner(Protocol):
    """Train and evaluate tensors. Everything that must live from job to job is in Job and Report.

    Calls block and run on one worker thread, never two at a time. A learner looks at `cancelled`
    between steps and then raises Cancelled at once, so that SIGTERM drains within one step.
    """

    @property
    def schema(self) -> str:
        """Digest of the names, shapes and dtypes of what is exchanged."""
        ...

    @property
    def backbone(self) -> str:
        """Fingerprint of the frozen model, its preprocessing included."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the node's own classes, sorted."""
        ...

    @property
    def samples(self) -> int:
        """Training images of this node."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for status: skipped files, fewer shots than asked, unknown words."""
        ...

    @property
    def examples(self) -> Mapping[str, tuple[Path, ...]]:
        """A few training images of each class, for the operator's own eyes; none where none are."""
        ...

    def initial(self, seed: int) -> Tensors:
        """Return the tensors that round 1 starts from."""
        ...

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        """Train from job.tensors; raise Cancelled when told to, DataError when images are gone."""
        ...

    def evaluate(self, tensors: Tensors, cancelled: Callable[[], bool]) -> Mapping[str, float]:
        """Return accuracies (0..1) by set name: "own", and "base", "new" where they are defined.

        An empty Tensors means zero-shot: the hand-crafted prompt.
        """
        ...


class Cancelled(Exception):
    """The job was told to stop and did; not an error."""
