"""The best prompts by value: what counts as better, and when the next round starts from them."""

from __future__ import annotations

from dataclasses import replace

from fednode.core.best import Best
from fednode.core.events import Adopt, CancelTimer
from fednode.core.types import PolicyState, Snapshot, Tensors

GOOD, BETTER, BAD = (Tensors({"context": [value]}) for value in (1.0, 2.0, 3.0))
NOTHING = Snapshot(PolicyState(0, GOOD, GOOD), {})


def best(drop: float = 0.1) -> Best:
    made = Best(NOTHING, drop)
    made.judge(1, {"validation": 0.5}, GOOD)
    return made


def test_only_a_higher_validation_accuracy_replaces_the_best() -> None:
    held = best()
    held.judge(2, {"validation": 0.5}, BETTER)  # as good is not better
    assert (held.round, held.validation) == (1, 0.5)
    held.judge(3, {"validation": 0.6}, BETTER)
    assert (held.round, held.validation) == (3, 0.6)
    held.judge(4, {"loss": 0.1}, BAD)  # a round without validation is not judged
    assert (held.round, held.validation) == (3, 0.6)


def test_a_fall_by_more_than_the_drop_starts_the_next_round_from_the_best_once() -> None:
    held = best(drop=0.25)
    held.judge(2, {"validation": 0.25}, BAD)  # by exactly the drop
    assert held.start() is None
    held.judge(3, {"validation": 0.2}, BAD)
    assert held.start() == GOOD
    assert held.start() is None


def test_an_operator_may_roll_back_as_soon_as_there_is_a_best() -> None:
    empty = Best(NOTHING, 1.0)
    assert not empty.roll_back()
    assert empty.start() is None
    held = best()
    assert held.roll_back()
    assert held.start() == GOOD


def test_adopted_snapshots_carry_the_best_and_other_effects_pass_unchanged() -> None:
    held = best()
    other = CancelTimer("policy.deadline")
    adopt = Adopt(replace(NOTHING, metrics={"loss": 1.0}), givers=("b",))
    assert held.in_snapshots([other, adopt]) == [
        other,
        Adopt(
            Snapshot(NOTHING.policy, {"loss": 1.0}, GOOD, best_round=1, best_validation=0.5),
            givers=("b",),
        ),
    ]


def test_a_restart_goes_on_from_the_best_of_the_last_snapshot() -> None:
    (adopt,) = best().in_snapshots([Adopt(NOTHING)])
    assert isinstance(adopt, Adopt)
    again = Best(adopt.snapshot, 0.1)
    assert (again.round, again.validation) == (1, 0.5)
    assert again.roll_back()
    assert again.start() == GOOD
