"""Asynchronous rounds wait for slow peers: how far ahead, how long, and for whom no more."""

from __future__ import annotations

import pytest

from fednode.core.pace import PATIENCE, STILL, Heard, Pace

LEAD = 5


def said(at: float, **rounds: int) -> list[Heard]:
    """Return what peers said of their rounds at a time."""
    return [Heard(name, number, at) for name, number in rounds.items()]


def after(number: int, seconds: float = 2.0) -> Pace:
    """Return the pace of a node whose round `number` took some seconds and ended at that time."""
    pace = Pace(LEAD)
    pace.began(number * 100.0)
    pace.ended(number * 100.0 + seconds)
    return pace


@pytest.mark.parametrize(("peer", "waits"), [(3, True), (4, False), (9, False), (90, False)])
def test_a_node_may_be_so_far_ahead_and_no_further(peer: int, waits: bool) -> None:
    pace = after(9)
    assert pace.wait(902.0, 10, said(901.0, near=9, slow=peer)) == (
        PATIENCE * 2.0 if waits else 0.0
    )
    assert pace.holds == waits


def test_the_wait_is_three_times_the_last_round_and_ends_when_the_peer_catches_up() -> None:
    pace = after(9)
    assert pace.wait(902.0, 10, said(901.0, slow=3)) == 6.0
    assert pace.wait(906.5, 10, said(906.0, slow=3)) == 1.5
    assert pace.wait(907.0, 10, said(907.0, slow=4)) == 0.0
    assert not pace.holds
    assert after(9).wait(908.0, 10, said(901.0, slow=3)) == 0.0


def test_a_peer_that_stands_still_is_waited_for_a_bounded_time_and_again_once_it_moves() -> None:
    pace, now, waited = Pace(LEAD), 0.0, 0.0
    for number in range(1, 100):
        wait = pace.wait(now, number, said(now, hung=0))
        waited += wait
        now += wait
        pace.began(now)
        now += 2.0
        pace.ended(now)
    assert STILL * 2.0 - LEAD * 2.0 <= waited + LEAD * 2.0 <= (STILL + 1 + PATIENCE) * 2.0
    assert pace.wait(now, 100, said(now, hung=0)) == 0.0
    assert pace.wait(now, 100, said(now + 0.5, hung=1)) == PATIENCE * 2.0


def test_a_peer_that_seldom_speaks_counts_as_it_was_when_it_spoke() -> None:
    pace = Pace(LEAD)
    for number in range(1, 50):
        assert pace.wait(2.0 * number, number, said(3.0, quiet=1)) == 0.0
        pace.began(2.0 * number)
        pace.ended(2.0 * number + 2.0)


def test_without_a_lead_and_before_the_first_round_nothing_waits() -> None:
    free = Pace(None)
    free.began(0.0)
    free.ended(5.0)
    assert free.wait(5.0, 100, said(4.0, slow=0)) == 0.0
    assert Pace(LEAD).wait(0.0, 100, said(0.0, slow=0)) == 0.0


def test_peers_that_left_are_not_waited_for() -> None:
    pace = after(9)
    assert pace.wait(902.0, 10, said(901.0, slow=0)) > 0
    assert pace.wait(902.0, 10, []) == 0.0
