"""A node whose training goes the wrong way, as with flipped labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fednode.core.types import Job, Progress, Report, Tensors
from fednode.learn.learner import Learner


class Flipped:
    """A learner that moves away from where its inner learner moves, as with flipped labels."""

    def __init__(self, inner: Learner) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        """Return the inner learner's report with the sign of its change reversed."""
        report = self._inner.tune(job, cancelled, progress)
        turned = {name: 2 * job.tensors[name] - one for name, one in report.tensors.items()}
        return replace(report, tensors=Tensors(turned))
