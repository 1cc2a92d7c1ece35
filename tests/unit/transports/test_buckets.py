"""Leaky buckets of callers."""

from __future__ import annotations

from fednode.transports.relay_service import Buckets


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    buckets = Buckets(rate=2.0, burst=3.0, most=9)
    assert [buckets.take("a", 0.0) for _ in range(5)] == [True, True, True, False, False]
    assert buckets.take("b", 0.0), "each caller has a bucket of its own"
    assert [buckets.take("a", 0.5) for _ in range(2)] == [True, False]
    assert [buckets.take("a", 100.0) for _ in range(4)] == [True, True, True, False]


def test_callers_are_forgotten_once_they_cost_nothing_and_new_ones_wait_for_that() -> None:
    buckets = Buckets(rate=1.0, burst=3.0, most=2)
    assert [buckets.take(who, 0.0) for who in "aabc"] == [True, True, True, False]
    assert buckets.take("c", 1.5), "b's bucket is empty"
    assert not buckets.take("b", 1.5), "those of a and c are not"
