"""Asynchronous rounds wait for slow peers: how far ahead, how long, and how often."""

from __future__ import annotations

import pytest

from fednode.core.pace import PATIENCE, Pace
from fednode.core.types import Message

LEAD = 5


def says(peer: str, at: int, phase: str = "ping") -> Message:
    """Return a message of a peer in a round."""
    return Message(mesh="m", fingerprint="", policy="zerodfl", sender=peer, round=at, phase=phase)


def wait(pace: Pace, now: float, number: int, **rounds: int) -> float:
    """Return the seconds to wait after peers, all of them live, said which rounds they are in."""
    for name, at in rounds.items():
        pace.heard(number - 1, says(name, at))
    return pace.wait(now, lambda _: True)


def after(number: int, seconds: float = 2.0) -> Pace:
    """Return the pace of a node whose round `number` took some seconds and ended at that time.

    The peers "near" and "slow" were there at the start.
    """
    pace = Pace(LEAD)
    for peer in ("near", "slow"):
        pace.heard(0, says(peer, 0, "hello"))
    pace.began(number * 100.0)
    pace.ended(number * 100.0 + seconds)
    return pace


@pytest.mark.parametrize(("peer", "waits"), [(3, True), (4, False), (9, False), (90, False)])
def test_a_node_may_be_so_far_ahead_and_no_further(peer: int, waits: bool) -> None:
    pace = after(9)
    assert wait(pace, 902.0, 10, near=9, slow=peer) == (PATIENCE * 2.0 if waits else 0.0)
    assert pace.holds == waits


def test_the_wait_is_three_times_the_last_round_and_ends_when_the_peer_catches_up() -> None:
    pace = after(9)
    assert wait(pace, 902.0, 10, slow=1) == PATIENCE * 2.0
    assert wait(pace, 906.5, 10, slow=2) == 1.5
    assert wait(pace, 907.0, 10, slow=4) == 0.0
    assert not pace.holds
    assert wait(after(9), 908.0, 10, slow=3) == 0.0


def test_the_interval_between_rounds_is_waited_for_too() -> None:
    pace = Pace(LEAD, interval_s=10.0)
    pace.began(0.0)
    pace.ended(2.0)
    assert wait(pace, 3.0, 10, slow=3) == 7.0
    assert wait(pace, 10.0, 10, slow=3) == 0.0


@pytest.mark.parametrize("slower", [2, 3])
def test_a_node_keeps_the_pace_of_a_slower_peer_that_speaks_each_round(slower: int) -> None:
    pace, now, number, heard = Pace(LEAD), 0.0, 1, 0
    while number < 100:
        while heard * slower <= now:  # the peer's rounds take `slower` times as long
            pace.heard(number - 1, says("slow", heard))
            heard += 1
        delay = pace.wait(now, lambda _: True)
        if delay:
            now = min(now + delay, heard * slower)
            continue
        pace.began(now)
        now += 1.0
        pace.ended(now)
        number += 1
    assert number - heard <= LEAD + slower + 1


def test_a_peer_that_stands_still_is_waited_for_once_in_so_many_rounds() -> None:
    pace, now, waits = Pace(LEAD), 0.0, list[int]()
    for number in range(1, 50):
        delay = wait(pace, now, number, hung=0)
        assert delay in {0.0, PATIENCE * 2.0}
        waits += [number] if delay else []
        now += delay
        assert pace.wait(now, lambda _: True) == 0.0
        pace.began(now)
        now += 2.0
        pace.ended(now)
    assert waits == list(range(LEAD + 2, 50, LEAD + 1))


def test_a_peer_that_seldom_speaks_counts_as_it_was_when_it_spoke() -> None:
    pace = Pace(LEAD)
    pace.heard(1, says("quiet", 1))
    for number in range(1, 50):
        assert pace.wait(2.0 * number, lambda _: True) == 0.0
        pace.began(2.0 * number)
        pace.ended(2.0 * number + 2.0)


def test_without_a_lead_and_before_the_first_round_nothing_waits() -> None:
    free = Pace(None)
    free.heard(0, says("slow", 0))
    free.began(0.0)
    free.ended(5.0)
    assert wait(free, 5.0, 100, slow=0) == 0.0
    assert wait(Pace(LEAD), 0.0, 100, slow=0) == 0.0


def test_peers_that_left_are_not_waited_for() -> None:
    pace = after(9)
    assert wait(pace, 902.0, 10, slow=1) > 0
    assert pace.wait(902.0, lambda _: False) == 0.0
    assert pace.wait(902.0, lambda _: True) > 0


def test_rounds_that_a_peer_missed_before_it_started_do_not_count() -> None:
    pace = after(9)
    pace.heard(9, says("newcomer", 0, "hello"))
    pace.heard(9, says("slow", 2, "hello"))  # it was off and is back
    assert wait(pace, 902.0, 10, newcomer=1, slow=3) == 0.0
    assert wait(pace, 903.0, 13, newcomer=4, slow=5) == 0.0
    assert wait(pace, 903.0, 15, newcomer=8) == 0.0  # the rounds that it makes up for count
    assert wait(pace, 903.0, 20, newcomer=8) == 0.0
    assert wait(pace, 903.0, 21, newcomer=8) == PATIENCE * 2.0 - 1.0
