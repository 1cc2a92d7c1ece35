"""The best prompts by value: what counts as better."""

from __future__ import annotations

from dataclasses import replace

from fednode.core.best import Best
from fednode.core.events import Adopt, CancelTimer
from fednode.core.types import PolicyState, Snapshot, Tensors

GOOD, BETTER, BAD = (Tensors({"context": [value]}) for value in (1.0, 2.0, 3.0))
NOTHING = Snapshot(PolicyState(0, GOOD, GOOD), {})


def best() -> Best:
    made = Best(NOTHING)
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
    again = Best(adopt.snapshot)
    assert (again.round, again.validation) == (1, 0.5)
    again.judge(2, {"validation": 0.4}, BAD)
    assert again.round == 1
