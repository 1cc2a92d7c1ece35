"""The learner's contract: it blocks, runs off the event loop, and is stateless between calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from fednode.core.types import Job, Progress, Report, Tensors


class Learner(Protocol):
    """Train and evaluate tensors. All state that lives from job to job is in Job and Report.

    Calls block and run on one worker thread, never two at a time. Between steps a learner reads
    `cancelled`. If it is true, the learner raises Cancelled at once, so a node that gets SIGTERM
    stops within one step.
    """

    @property
    def schema(self) -> str:
        """Digest of the names, shapes and dtypes of the exchanged arrays."""

    @property
    def backbone(self) -> str:
        """Fingerprint of the frozen model, including its preprocessing."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the node's own classes, sorted."""

    @property
    def samples(self) -> int:
        """Number of training images of this node."""

    @property
    def announced(self) -> tuple[tuple[str, ...], int]:
        """Class names and number of training images that members may see.

        A learner whose messages name classes leaves out those of too few images
        (privacy.least_images).
        """
        return self.classes, self.samples

    @property
    def unsent(self) -> str:
        """A sentence on the classes that `announced` leaves out; "" if it leaves out none."""
        return ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for `fednode status`: skipped files, fewer shots than asked, unknown words."""
        return ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for `fednode status` on images that make the test accuracy wrong."""
        return ()

    def initial(self, seed: int) -> Tensors:
        """Return the tensors that round 1 starts from, equal for equal seeds."""

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        """Train from job.tensors.

        A job of stage MEASURE trains nothing: the report has job.tensors and their metrics. Raise
        Cancelled if `cancelled` turns true, DataError if images can no longer be read, ModelError
        if the tuned tensors are not finite.
        """

    def evaluate(self, tensors: Tensors, cancelled: Callable[[], bool]) -> Mapping[str, float]:
        """Return accuracies (0..1) by test set: "own", and "base" and "new" if there are any.

        Empty tensors mean zero-shot: the accuracy of the hand-written prompt.
        """


Release = Callable[[Job, Report, Callable[[Job], Report]], Report]
"""What a host does to a report before it hands it on, such as clipping and noise: it takes the job,
the report, and a function that runs a job of stage MEASURE."""


def released(
    learner: Learner,
    release: Release | None,
    job: Job,
    cancelled: Callable[[], bool],
    progress: Callable[[Progress], None],
) -> Report:
    """Return the learner's report on a job, as the host hands it on."""
    report = learner.tune(job, cancelled, progress)
    if release is None:
        return report
    return release(job, report, lambda look: learner.tune(look, cancelled, progress))


class Cancelled(Exception):
    """The job stopped because it was told to; not an error."""
