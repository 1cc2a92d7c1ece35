"""Token buckets: bursts pass, floods do not, and the flood of one is not that of others."""

from __future__ import annotations

from fednode.core.rate_limit import (
    BUCKETS_MAX,
    BURST_S,
    EVERY_S,
    RECORDS,
    Changes,
    Quota,
)
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
    for number in range(BUCKETS_MAX + 10):
        quota.spend(str(number), 100.0, 0.0)
    assert quota.refuse("0", 1, 0.0) == ""
    assert quota.refuse(str(BUCKETS_MAX + 9), 1, 0.0)


# Records of members that come and go -----------------------------------------------------------


def test_a_member_that_comes_and_goes_writes_a_record_a_minute() -> None:
    changes, written = Changes(), 0
    seconds = 600.0
    for at in range(16_800):  # 28 pairs a second
        for state in ("left", "alive"):
            written += len(changes.record(at * seconds / 16_800, "d", state, ""))
    assert written <= RECORDS + seconds / EVERY_S + 1


def test_the_next_record_says_how_many_were_left_out_and_others_are_not_bound() -> None:
    changes = Changes()
    for _ in range(RECORDS + 5):
        changes.record(0.0, "d", "alive", "")
    assert changes.record(0.0, "d", "left", "said so") == []
    (other,) = changes.record(0.0, "b", "left", "said so")
    assert (other.text, other.level) == ("b left the mesh: said so", "info")
    (told,) = changes.record(EVERY_S, "d", "alive", "")
    assert told.text == "d is alive (6 such changes of d before this one were left out)"


def test_a_member_that_never_answered_is_not_called_dead() -> None:
    (told,) = Changes().record(0.0, "d", "dead", "nobody answers at d:1", "unknown")
    assert (told.kind, told.text) == ("peer.dead", "d does not answer yet: nobody answers at d:1")
    assert told.level == "info", "a site that joins is named before it listens"
    (later,) = Changes().record(0.0, "d", "dead", "silent", "suspect")
    assert later.text == "d is offline: silent"


def test_a_warning_is_written_however_often_its_member_came_and_went() -> None:
    changes = Changes()
    for _ in range(1000):
        changes.record(0.0, "d", "alive", "")
    (told,) = changes.record(0.0, "d", "dead", "silent for 9 s")
    assert (told.kind, told.level) == ("peer.dead", "warning")
    assert told.text == "d is offline: silent for 9 s"
