"""A mesh inside one process does what the policies say, and repeats itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from bootstrap import lockstep
from node.core.events import Effect, Event
from node.learn.closed_form import STEPS, ClosedFormLearner
from node.policies.local.exchange import Local, LocalConfig
from node.policies.zerodfl.config import ZeroDFLConfig
from node.policies.zerodfl.exchange import ZeroDFL

NAMES = ("a", "b", "c")


def learners() -> dict[str, ClosedFormLearner]:
    return {name: ClosedFormLearner(name) for name in NAMES}


def test_local_is_each_node_alone_in_closed_form() -> None:
    found = lockstep.run(Local, LocalConfig(), learners(), rounds=3, seed=1)
    for name, learner in learners().items():
        start = np.asarray(learner.initial(1)["context"], dtype=np.float64)
        # Every step of rate 0.1 shrinks the distance to the target by 0.9; rounds pass float32.
        distance = (start - learner.target) * 0.9 ** (3 * STEPS)
        assert found[name]["loss"] == pytest.approx(0.5 * np.mean(distance**2), rel=1e-4)


def test_zerodfl_exchanges_and_repeats_itself() -> None:
    first, again = (
        lockstep.run(ZeroDFL, ZeroDFLConfig(recipients=2), learners(), rounds=4, seed=1)
        for _ in range(2)
    )
    alone = lockstep.run(Local, LocalConfig(), learners(), rounds=4, seed=1)
    assert first == again
    assert all(first[name]["loss"] > 2 * alone[name]["loss"] for name in NAMES)


def test_messages_go_through_the_rounding_of_the_wire() -> None:
    coarse, fine = (
        lockstep.run(ZeroDFL, ZeroDFLConfig(wire_dtype=dtype), learners(), rounds=3, seed=1)
        for dtype in ("float16", "float32")
    )
    assert coarse != fine
    assert coarse["a"]["loss"] == pytest.approx(fine["a"]["loss"], rel=0.01)


def test_one_node_is_a_mesh_too() -> None:
    found = lockstep.run(ZeroDFL, ZeroDFLConfig(), {"a": ClosedFormLearner("a")}, 2, 1)
    assert found["a"]["own"] > 0.5


def test_a_policy_that_does_not_end_its_round_is_a_defect() -> None:
    class Idle(Local):
        def handle(self, now: float, event: Event) -> Sequence[Effect]:
            return []

    with pytest.raises(RuntimeError, match="round 1 did not end at a, b, c"):
        lockstep.run(Idle, LocalConfig(), learners(), 1, 1)
