"""How far work is, in words."""

from __future__ import annotations

from fednode.observe.working import SAY_EVERY_S, Working


def test_work_is_told_with_its_count_and_the_time_left() -> None:
    now = [100.0]
    working = Working(clock=lambda: now[0])
    assert str(working) == ""
    for spent, work, said in (
        (0.0, ("examining images", 200, 2_870), "examining images 200 of 2,870 (0 s)"),
        (10.0, ("examining images", 1_200, 2_870),
         "examining images 1,200 of 2,870 (10 s, about 17 s left)"),  # 200 were known from before
        (0.0, ("examining images", 2_870, 2_870), ""),  # the last image ends the work
        (0.0, ("loading the model", 0, 0), "loading the model (0 s)"),
        (70.0, ("loading the model", 0, 0), "loading the model (1 min)"),
        (0.0, ("encoding images", 0, 64), "encoding images 0 of 64 (0 s)"),  # begins anew
        (0.0, ("", 0, 0), ""),
    ):  # fmt: skip
        now[0] += spent
        working(*work)
        assert str(working) == said


def test_a_sentence_is_said_at_most_every_few_seconds() -> None:
    now, said = [100.0], list[str]()
    working = Working(said.append, lambda: now[0])
    for done in range(1, 101):
        working("encoding images", done, 1_000)
        now[0] += SAY_EVERY_S / 10
    assert len(said) == 9
    assert said[0] == "encoding images 11 of 1,000 (5 s, about 8 min left)"
    working("", 0, 0)
    working("encoding images", 0, 32)
    assert len(said) == 9, "short work after long work says nothing"
