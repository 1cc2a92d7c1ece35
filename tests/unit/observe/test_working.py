"""How far work is, in words."""

from __future__ import annotations

from fednode.observe.working import SAY_EVERY_S, Working


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_work_is_told_with_its_count_and_the_time_left() -> None:
    clock = Clock()
    working = Working(clock=clock)
    assert str(working) == ""
    working("examining images", 200, 2_870)  # 200 were known from before
    clock.now += 0.5
    assert str(working) == "examining images 200 of 2,870 (0 s)"
    clock.now += 9.5
    working("examining images", 1_200, 2_870)
    assert str(working) == "examining images 1,200 of 2,870 (10 s, about 17 s left)"
    working("examining images", 2_870, 2_870)
    assert str(working) == "", "the last image ends the work"


def test_work_without_a_count_ends_when_it_is_told() -> None:
    clock = Clock()
    working = Working(clock=clock)
    working("loading the model", 0, 0)
    clock.now += 70
    assert str(working) == "loading the model (1 min)"
    working("encoding images", 0, 64)
    assert str(working) == "encoding images 0 of 64 (0 s)", "other work begins anew"
    working("", 0, 0)
    assert working.work() is None


def test_a_sentence_is_said_at_most_every_few_seconds() -> None:
    clock, said = Clock(), list[str]()
    working = Working(said.append, clock)
    for done in range(1, 101):
        working("encoding images", done, 1_000)
        clock.now += SAY_EVERY_S / 10
    assert len(said) == 9
    assert said[0] == "encoding images 11 of 1,000 (5 s, about 8 min left)"
    working("", 0, 0)
    working("encoding images", 0, 32)
    assert len(said) == 9, "short work after long work says nothing"
