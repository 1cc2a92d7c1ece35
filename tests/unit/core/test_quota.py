"""Leaky buckets: bursts pass, floods do not, and one caller's flood is nobody else's."""

from __future__ import annotations

import pytest

from fednode.core.quota import BURST_S, PEERS_MAX, Quota
from fednode.core.settings import LimitSettings

LIMITS = LimitSettings(messages_s=10.0, megabytes_s=1.0)


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    quota = Quota(LIMITS, busy_share=0.1)
    taken = sum(not quota.refuse("b", 100, 0.0) for _ in range(500))
    assert taken == 10 * BURST_S
    assert "more than 10 messages a second" in quota.refuse("b", 100, 0.0)
    assert [bool(quota.refuse("b", 100, 1.0)) for _ in range(11)] == [False] * 10 + [True]
    assert quota.refuse("c", 100, 1.0) == ""


def test_bytes_and_time_are_limited_too() -> None:
    quota = Quota(LIMITS, busy_share=0.1)
    assert quota.refuse("b", 9_000_000, 0.0) == ""
    assert "more than 1 MB a second" in quota.refuse("b", 2_000_000, 0.0)
    assert quota.refuse("b", 2_000_000, 2.0) == ""
    quota.spend("c", 1.5, 0.0)
    assert "more than 0.1 seconds of this node's time" in quota.refuse("c", 1, 0.0)
    assert quota.refuse("c", 1, 6.0) == ""


def test_of_many_callers_the_oldest_is_forgotten() -> None:
    quota = Quota(LIMITS, busy_share=0.1)
    for number in range(PEERS_MAX + 10):
        quota.spend(str(number), 100.0, 0.0)
    assert quota.refuse("0", 1, 0.0) == ""
    assert quota.refuse(str(PEERS_MAX + 9), 1, 0.0)


@pytest.mark.parametrize(
    ("key", "value"),
    [("messages_s", 0.0), ("megabytes_s", -1.0)],
)
def test_limits_are_bounded(key: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"limits.{key} is"):
        LimitSettings(**{key: value})
