"""The thread that tunes; other settings give it other work between two jobs."""

from __future__ import annotations

from fednode.core.events import Tuned, TuneFailed
from fednode.core.types import Job
from fednode.learn.closed_form import ClosedFormLearner
from fednode.observe.telemetry import Telemetry
from fednode.runtime.worker import Learning, Worker


def job(learner: ClosedFormLearner) -> Job:
    return Job(round=1, stage="", tensors=learner.initial(1), seed=1)


async def test_a_job_is_done_with_the_learner_of_the_present_settings() -> None:
    first, second = ClosedFormLearner("a"), ClosedFormLearner("b")
    worker = Worker(Learning(learner=first), Telemetry())
    done = await worker.tune(job(first))
    assert isinstance(done, Tuned)
    worker.take(Learning(learner=second, dtype="float16"))
    other = await worker.tune(job(first))
    assert isinstance(other, Tuned)
    assert done.report.tensors != other.report.tensors, "a and b have other targets"
    assert worker.progress is None
    worker.cancel()
    worker.close()


async def test_a_defect_ends_the_job_and_not_the_node() -> None:
    worker = Worker(Learning(learner=ClosedFormLearner("a")), Telemetry())
    worker._watched = None  # type: ignore[assignment]
    worker.take(Learning(learner=ClosedFormLearner("a")))
    broken = Job(round=1, stage="", tensors=None, seed=1)  # type: ignore[arg-type]
    failed = await worker.tune(broken)
    assert isinstance(failed, TuneFailed)
    assert failed.reason.startswith("the learner failed: ")
    worker.close()
