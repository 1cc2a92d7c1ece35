"""The thread that tunes: images and classes that come and go meanwhile are said and stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fednode.core.events import Record, Tuned
from fednode.core.types import Job, Progress, Report
from fednode.errors import StateError
from fednode.learn.quadratic import QuadraticLearner
from fednode.observe.telemetry import Telemetry
from fednode.runtime.worker import ALL_SENT, Learning, Worker


class Growing(QuadraticLearner):
    """Has other classes, images and unsent classes after each job: a folder that somebody fills."""

    def __init__(self, *states: tuple[tuple[str, ...], int, str]) -> None:
        super().__init__("a")
        self._now, *self._next = states

    @property
    def classes(self) -> tuple[str, ...]:
        return self._now[0]

    @property
    def samples(self) -> int:
        return self._now[1]

    @property
    def unsent(self) -> str:
        return self._now[2]

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        if self._next:
            self._now = self._next.pop(0)
        return super().tune(job, cancelled, progress)


class Told(Telemetry):
    """Keeps the records that came since they were read last."""

    def __init__(self) -> None:
        super().__init__()
        self.records = list[str]()

    def record(self, record: Record) -> None:
        if record.level != "debug":
            self.records.append(f"{record.level}: {record.text}")

    def read(self) -> list[str]:
        found, self.records = self.records, []
        return found


async def rounds(
    learner: Any, remember: Callable[[tuple[str, ...]], None] | None = None, count: int = 3
) -> list[list[str]]:
    """Return what is told at the start, and after each of some jobs."""
    told = Told()
    worker = Worker(Learning(learner=learner, remember=remember), told)
    worker.look()
    texts = [told.read()]
    for number in range(1, count + 1):
        job = Job(round=number, stage="prompts", tensors=learner.initial(1), seed=3)
        assert isinstance(await worker.tune(job), Tuned)
        assert worker.progress is None
        texts.append(told.read())
    worker.close()
    return texts


def held(classes: Sequence[str], samples: int = 8, unsent: str = "") -> Any:
    return tuple(classes), samples, unsent


async def test_classes_that_come_and_go_are_said_and_stored() -> None:
    pets, owls = ("cat", "dog"), ("cat", "owl")
    learner = Growing(held(pets), held(pets), held(owls, 9), held(owls, 11))
    stored: list[tuple[str, ...]] = []
    assert await rounds(learner, stored.append) == [
        [],
        [],
        [
            "info: The classes of the images changed: 2 now, 2 before; new: owl; gone: dog. "
            "Training images: 9."
        ],
        ["info: the images changed: 11 for training now, 9 before"],
    ]
    assert stored == [owls]


async def test_many_new_classes_are_not_all_named() -> None:
    _, (text,) = await rounds(Growing(held("a", 1), held("abcdefgh")), count=1)
    assert "8 now, 1 before; new: b, c, d, e, f and 2 more. Training images: 8." in text


async def test_classes_that_could_not_be_stored_are_stored_later() -> None:
    stored, faults = list[tuple[str, ...]](), [1]

    def remember(classes: tuple[str, ...]) -> None:
        if faults:
            faults.pop()
            raise StateError("classes.txt cannot be written: the disk is full.")
        stored.append(classes)

    texts = await rounds(Growing(held("a"), held("ab")), remember, 2)
    assert texts[1][1:] == ["error: classes.txt cannot be written: the disk is full."]
    assert (texts[2], stored) == ([], [("a", "b")])


async def test_classes_that_are_not_sent_are_said_at_the_start_and_when_they_change() -> None:
    few, more = "cup has few", "cup and jar have few"
    learner = Growing(*(held("a", 8, unsent) for unsent in (few, few, more, "", "")))
    assert await rounds(learner, count=4) == [
        [f"warning: {few}"],
        [],
        [f"warning: {more}"],
        [f"info: {ALL_SENT}"],
        [],
    ]


async def test_a_folder_that_grows_reaches_the_state_directory(tmp_path: Path) -> None:
    """The whole way, with real images and the model that ships."""
    from fednode.app.plan import learner_of
    from fednode.app.state_dir import recall, remember
    from tests.unit.commands.tuned import tune_in

    state = tune_in(tmp_path)
    settings = recall(state).settings
    learner = learner_of(settings, "a")
    (tmp_path / "images" / "sea").rename(tmp_path / "images" / "pond")
    _, (text,) = await rounds(
        learner, lambda classes: remember(state, "a", settings, classes), count=1
    )
    assert "new: pond; gone: sea" in text
    assert recall(state).classes == ("lemon", "pond")
