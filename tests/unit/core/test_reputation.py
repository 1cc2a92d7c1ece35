"""Faults fade or add up to quarantine; refusals are shown up to a limit."""

from __future__ import annotations

from fednode.core.reputation import SHOWN_MAX, Reputation, Tally, Tolerance

LIMITS = Tolerance(budget=3, forgiven_s=50.0, quarantine_s=60.0)


def test_faults_are_forgiven_with_time_and_quarantine_doubles() -> None:
    reputation = Reputation(LIMITS)
    assert [reputation.fault("b", at) for at in (0.0, 0.0, 50.0, 51.0)] == [0.0, 0.0, 0.0, 60.0]
    assert [reputation.fault("b", 51.0) for _ in range(3)] == [0.0, 0.0, 120.0]
    for expected in (240.0, 480.0):
        assert [reputation.fault("b", 9e9) for _ in range(3)] == [0.0, 0.0, expected]
    assert reputation.fault("c", 200.0) == 0.0


def test_slow_faults_never_add_up() -> None:
    reputation = Reputation(LIMITS)
    assert all(reputation.fault("b", 50.0 * at) == 0.0 for at in range(1000))


def test_many_senders_of_one_kind_silence_no_other_kind() -> None:
    tally = Tally()
    told = sum(tally.first("certificate", f"192.0.2.{number}") for number in range(SHOWN_MAX + 9))
    assert told == SHOWN_MAX
    assert tally.first("identity", "b")
    assert not tally.first("identity", "b")
    assert tally.counts == {"certificate": SHOWN_MAX + 9, "identity": 2}
