"""Classes and images that come and go while a node runs: said, stored and shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fednode.core.types import Job, Progress, Report, Tensors
from fednode.errors import StateError
from fednode.learn.quadratic import QuadraticLearner
from fednode.runtime.worker import ALL_SENT, Watched


class Growing(QuadraticLearner):
    """Has other classes and images after each job, as a folder that somebody fills."""

    def __init__(self, states: Sequence[tuple[tuple[str, ...], int]]) -> None:
        super().__init__("a")
        self._now, *self._next = states

    @property
    def classes(self) -> tuple[str, ...]:
        return self._now[0]

    @property
    def samples(self) -> int:
        return self._now[1]

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        if self._next:
            self._now = self._next.pop(0)
        return super().tune(job, cancelled, progress)


def texts(watched: Watched, learner: QuadraticLearner) -> list[str]:
    job = Job(round=1, stage="prompts", tensors=learner.initial(1), seed=3)
    report, records = watched.tune(job, lambda: False, lambda _: None)
    assert isinstance(report.tensors, Tensors)
    return [f"{one.level}: {one.text}" for one in records]


def test_classes_that_come_and_go_are_said_and_stored() -> None:
    states = [(("cat", "dog"), 8), (("cat", "dog"), 8), (("cat", "owl"), 9), (("cat", "owl"), 11)]
    learner = Growing(states)
    stored: list[tuple[str, ...]] = []
    watched = Watched(learner, stored.append)
    assert texts(watched, learner) == []
    assert texts(watched, learner) == [
        "info: The classes of the images changed: 2 now, 2 before; new: owl; gone: dog. "
        "Training images: 9."
    ]
    assert texts(watched, learner) == ["info: the images changed: 11 for training now, 9 before"]
    assert stored == [("cat", "owl")]


def test_many_new_classes_are_not_all_named() -> None:
    learner = Growing([(("a",), 1), (tuple("abcdefgh"), 8)])
    (text,) = texts(Watched(learner), learner)
    assert "8 now, 1 before; new: b, c, d, e, f, .... Training images: 8." in text


def test_classes_that_could_not_be_stored_are_stored_later() -> None:
    learner, stored, faults = Growing([(("a",), 1), (("a", "b"), 2)]), list[tuple[str, ...]](), [1]

    def remember(classes: tuple[str, ...]) -> None:
        if faults:
            faults.pop()
            raise StateError("classes.txt cannot be written: the disk is full.")
        stored.append(classes)

    watched = Watched(learner, remember)
    assert texts(watched, learner)[1:] == [
        "error: classes.txt cannot be written: the disk is full."
    ]
    assert stored == []
    assert texts(watched, learner) == []
    assert stored == [("a", "b")]


class Sparse(Growing):
    """Leaves out other classes after each job."""

    def __init__(self, *unsent: str) -> None:
        super().__init__([(("a",), 1)])
        self._unsent, *self._later = unsent

    @property
    def unsent(self) -> str:
        return self._unsent

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        self._unsent = self._later.pop(0)
        return super().tune(job, cancelled, progress)


def test_classes_that_are_not_sent_are_said_at_the_start_and_when_they_change() -> None:
    learner = Sparse("cup has few", "cup has few", "cup and jar have few", "", "")
    watched = Watched(learner)
    assert [f"{one.level}: {one.text}" for one in watched.changes()] == ["warning: cup has few"]
    assert texts(watched, learner) == []
    assert texts(watched, learner) == ["warning: cup and jar have few"]
    assert texts(watched, learner) == [f"info: {ALL_SENT}"]
    assert texts(watched, learner) == []


def test_a_folder_that_grows_reaches_the_state_directory(tmp_path: Path) -> None:
    """The whole way, with real images and the model that ships."""
    from fednode.app.plan import learner_of
    from fednode.app.state_dir import recall, remember
    from tests.unit.commands.tuned import tune_in

    state = tune_in(tmp_path)
    settings = recall(state).settings
    learner = learner_of(settings, "a")
    watched = Watched(learner, lambda classes: remember(state, "a", settings, classes))
    (tmp_path / "images" / "sea").rename(tmp_path / "images" / "pond")
    job = Job(round=2, stage="prompts", tensors=learner.initial(1), seed=3)
    _, records = watched.tune(job, lambda: False, lambda _: None)
    assert [one.kind for one in records] == ["data.classes"]
    assert recall(state).classes == ("lemon", "pond")
