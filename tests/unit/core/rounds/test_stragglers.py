"""For whom a round waits: peers that let rounds wait in vain are waited for less and less often."""

from __future__ import annotations

import pytest

from fednode.core.rounds.stragglers import (
    DEADLINES_MAX,
    MISSES_MAX,
    ROUNDS_MAX,
    Misses,
    Stragglers,
)
from fednode.core.types import Json


def waits(stragglers: Stragglers, first: int, last: int, deadline_s: float = 1.0) -> list[int]:
    """Return the rounds that wait for b in vain; rounds take a second, and the deadline's time."""
    waited, now = [], 0.0
    for number in range(first, last):
        now += 1.0
        if "b" in stragglers.awaited("bc", number):
            now += deadline_s
            waited.append(number)
            stragglers.missed(["b"], number, now, deadline_s)
    return waited


def test_who_never_contributes_costs_few_deadlines() -> None:
    assert waits(Stragglers(), 1, 200) == [1, 2, 4, 8, 16, 32, 64, 128, 192]
    assert ROUNDS_MAX == 64


def test_all_nodes_wait_in_vain_in_the_same_rounds() -> None:
    assert waits(Stragglers(), 5, 200) == [5, 6, 8, 16, 32, 64, 128, 192]
    assert waits(Stragglers(), 27, 200) == [27, 28, 32, 40, 48, 64, 128, 192]


def test_who_never_contributes_costs_little_time_whatever_the_deadline() -> None:
    for deadline_s in (0.1, 1.0, 10.0, 100.0):
        before, found = 10_000, waits(stragglers := Stragglers(), 1, 40_000, deadline_s)
        late = [number for number in found if number > before]
        share = deadline_s * len(late) / (40_000 - before)
        assert share <= 1 / (DEADLINES_MAX - 1), (deadline_s, share)
        assert stragglers.records["b"].count < MISSES_MAX


def test_one_contribution_in_time_makes_up_for_all() -> None:
    stragglers = Stragglers()
    for number in (1, 3, 6):
        stragglers.missed(["b"], number)
    assert Stragglers.thaw(dict(stragglers.freeze())).records == stragglers.records
    stragglers.kept("b")
    stragglers.missed(["b"], 8)
    assert stragglers.awaited("bc", 8) == {"c"}, "a later stage of the round"
    assert stragglers.awaited("bc", 9) == {"c"}
    assert stragglers.awaited("bc", 10) == {"b", "c"}


def test_who_would_wait_for_nobody_waits_for_those_behind() -> None:
    stragglers = Stragglers(behind=frozenset("bd"))
    stragglers.missed(["b", "c"], 8)
    assert stragglers.awaited("bc", 9) == {"b"}
    assert stragglers.awaited("c", 9) == set()
    stragglers.behind = frozenset()
    assert stragglers.awaited("bc", 9) == set()
    stragglers.kept("c")
    stragglers.behind = frozenset("b")
    assert stragglers.awaited("bc", 9) == {"c"}


def test_the_peers_that_were_missed_are_named_in_order() -> None:
    stragglers = Stragglers()
    assert stragglers.missed(["c", "b"], 3) == "b, c"
    assert stragglers.missed([], 4) == ""
    assert stragglers.records == {"b": Misses(3, 1), "c": Misses(3, 1)}


@pytest.mark.parametrize("data", [None, {}, "b", {"b": 3}])
def test_a_state_without_records_begins_with_none(data: Json) -> None:
    assert Stragglers.thaw(data).records == {}
