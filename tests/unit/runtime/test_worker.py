"""The thread that tunes."""

from __future__ import annotations

from fednode.core.events import Tuned, TuneFailed
from fednode.core.types import Job
from fednode.learn.quadratic import QuadraticLearner
from fednode.observe.telemetry import Telemetry
from fednode.runtime.worker import Learning, Worker


def job(learner: QuadraticLearner) -> Job:
    return Job(round=1, stage="", tensors=learner.initial(1), seed=1)


async def test_a_job_is_done_with_the_learner() -> None:
    learner = QuadraticLearner("a")
    worker = Worker(Learning(learner=learner), Telemetry())
    done = await worker.tune(job(learner))
    assert isinstance(done, Tuned)
    assert done.report.tensors != learner.initial(1)
    assert worker.progress is None
    worker.cancel()
    worker.close()


async def test_a_defect_ends_the_job_and_not_the_node() -> None:
    worker = Worker(Learning(learner=QuadraticLearner("a")), Telemetry())
    broken = Job(round=1, stage="", tensors=None, seed=1)  # type: ignore[arg-type]
    failed = await worker.tune(broken)
    assert isinstance(failed, TuneFailed)
    assert failed.reason.startswith("the learner failed: ")
    worker.close()
