"""The benchmark of class sums counts a message as the wire does."""

from __future__ import annotations

from fednode.lab.bench.sums import measure


def test_a_message_holds_a_count_and_a_sum_for_each_class() -> None:
    small, large = measure(3, 8), measure(6, 8)
    assert large.message - small.message > 3 * 4 * (1 + 8)
    assert small.message > 3 * 4 * (1 + 8)
    assert small.head_ms > 0 < small.left_out_ms
