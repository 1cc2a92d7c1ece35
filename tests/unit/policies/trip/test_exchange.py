"""TRIP's exchange: what is tuned, what is predicted with, and the average between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fednode.core.events import RoundDue
from fednode.core.rounds.kind import MethodPolicy
from fednode.core.rounds.method import Contribution, MethodState, Round
from fednode.core.settings import RoundSettings
from fednode.core.types import Report, Tensors
from fednode.policies.trip.config import TRIPConfig
from fednode.policies.trip.exchange import TRIP
from tests.unit.core.rounds.staged import context, heard, job, trained, up

START = Tensors({"experts": np.ones((2, 1, 2))})


def method(**config: Any) -> TRIP:
    return TRIP(TRIPConfig(weights="equal", **config), context("trip", max=3))


def told(sender: str, value: float) -> Contribution:
    return Contribution(sender, Tensors({"experts": np.full((2, 1, 2), value)}), 8)


def test_the_average_is_the_weighted_one_of_all_means() -> None:
    one, means = method(), (3.0, 5.0, 4.0)
    state = one.first(START)
    density = [((r + 0.5) / 4 * (1 - (r + 0.5) / 4)) ** (0.2 - 1.0) for r in range(4)]
    for number, value in enumerate(means, 1):
        now = Round(number, "prompts", state, state)
        tune = one.job(now)
        assert tune is not None
        assert tune.tensors["experts"] == pytest.approx(means[number - 2] if number > 1 else 1.0)
        state = one.merge(now, (told("a", value - 1.0), told("b", value + 1.0)))
        held = [1.0, *means[:number]]
        wanted = np.average(held, weights=density[: number + 1])
        assert state.shared["experts"] == pytest.approx(wanted, rel=1e-5)
        assert state.arrays["raw/experts"] == pytest.approx(value)
    assert one.merge(Round(4, "prompts", state, state), ()) == state, "no contribution, no weight"


def test_a_node_uses_the_average_and_tunes_the_mean() -> None:
    policy = up(MethodPolicy(TRIP).start(TRIPConfig(), context("trip", max=3), START))
    effects = trained(policy, policy.handle(0.0, RoundDue(1)), by=2.0)
    said = Tensors({"experts": np.full((2, 1, 2), 3.0)})
    measured = job(heard(policy, effects, {"b": said, "c": said})).job
    used = float(measured.tensors["experts"][0, 0, 0])
    assert 1.0 < used < 3.0, "between the start and the mean"
    assert np.array_equal(policy.now.draft.arrays["raw/experts"], said["experts"])


@pytest.mark.parametrize("average", [True, False])
def test_in_int8_changes_of_the_mean_are_sent(average: bool) -> None:
    one = method(average=average, wire_dtype="int8")
    state = one.using(one.first(START), Tensors({"experts": np.full((2, 1, 2), 4.0)}))
    first = Round(1, "prompts", state, state)
    state = one.merge(first, one.received(first, (told("a", 2.0),)))  # 4 + 2
    now = Round(2, "prompts", state, state)
    report = Report(tensors=Tensors({"experts": np.full((2, 1, 2), 7.0)}), metrics={}, samples=8)
    sent = one.contribution(now, report)
    assert sent.tensors["experts"] == pytest.approx(1.0)
    assert sent.draft.shared == state.shared


def test_given_prompts_set_the_average_too() -> None:
    one = method()
    back = one.using(one.first(START), Tensors({"experts": np.full((2, 1, 2), 9.0)}))
    assert back.shared["experts"].max() == 9.0
    assert back.arrays["raw/experts"].min() == 9.0


def test_without_the_average_it_is_plain_averaging() -> None:
    one = method(average=False)
    state = one.first(START)
    assert state == MethodState(START)
    merged = one.merge(Round(1, "prompts", state, state), (told("a", 2.0), told("b", 4.0)))
    assert merged.shared == Tensors({"experts": np.full((2, 1, 2), 3.0)})
    assert not merged.arrays


def test_an_average_needs_an_end() -> None:
    assert "rounds.max is 0" in TRIP.settings_fault(TRIPConfig(), RoundSettings(max=0), "")
    assert not TRIP.settings_fault(TRIPConfig(average=False), RoundSettings(max=0), "")
