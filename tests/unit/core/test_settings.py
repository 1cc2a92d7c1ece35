"""The core's settings refuse what makes no sense, with the value and the limits."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from fednode.core.settings import (
    GuardSettings,
    LimitSettings,
    MergeSettings,
    RoundSettings,
    StartSettings,
    TopologySettings,
    bounded,
    positive,
)


def test_a_bound_holds_its_ends_and_a_value_beyond_is_named_with_it() -> None:
    refused = []
    for value in (0.0, 5.0, 10.0, -0.1, 10.1, math.nan, math.inf):
        try:
            bounded("x", value, 0, 10)
        except ValueError as fault:
            refused.append(str(fault))
    values = ("-0.1", "10.1", "nan", "inf")
    assert refused == [f"x is {value}; it must be from 0 to 10." for value in values]


def test_a_bound_without_an_upper_end_still_refuses_what_is_not_finite() -> None:
    with pytest.raises(ValueError, match=r"^x is inf; it must be at least 0\.$"):
        bounded("x", math.inf, 0)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_positive_means_above_zero_and_finite(value: float) -> None:
    positive("x", 1e-9)
    with pytest.raises(ValueError, match=rf"^x is {value:g}; it must be above 0\.$"):
        positive("x", value)
    with pytest.raises(ValueError, match=r"^x is 3; it must be above 0 and at most 2\.$"):
        positive("x", 3.0, 2.0)


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: StartSettings(peers=-1), "rounds.start.peers"),
        (lambda: StartSettings(timeout_s=-1), "rounds.start.timeout_s"),
        (lambda: RoundSettings(max=-1), "rounds.max"),
        (lambda: RoundSettings(deadline_s=0), "rounds.deadline_s"),
        (lambda: RoundSettings(min_interval_s=-1), "rounds.min_interval_s"),
        (lambda: RoundSettings(lead=-1), "rounds.lead"),
        (lambda: GuardSettings(merged_rise=-0.1), "guard.merged_rise"),
        (lambda: MergeSettings(liars=-1), "policy.merge.liars"),
        (lambda: MergeSettings(trim=0.6), "policy.merge.trim"),
        (lambda: LimitSettings(messages_s=0), "limits.messages_s"),
        (lambda: LimitSettings(megabytes_s=0), "limits.megabytes_s"),
        (lambda: TopologySettings(degree=0), "topology.degree"),
    ],
)
def test_a_section_names_the_key_that_is_wrong(make: Callable[[], object], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        make()


def test_a_guard_that_needs_validation_images_says_by_which_key() -> None:
    assert GuardSettings().judged_by == ""
    assert GuardSettings(keep_best=True).judged_by == "guard.keep_best"
    assert GuardSettings(merged_rise=0.0).judged_by == "guard.merged_rise"
