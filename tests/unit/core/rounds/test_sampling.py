"""Who takes part in a round: the same on all nodes, and equally often over rounds."""

from __future__ import annotations

import hashlib
from itertools import combinations

import pytest

from fednode import registry
from fednode.core.rounds.exchange import participating, period, sample

NAMES = tuple("abcdef")
ROUNDS = range(1, 3001)


def test_the_draw_is_the_first_names_by_a_hash_of_seed_name_and_round() -> None:
    def rank(name: str) -> bytes:
        return hashlib.sha256(f"7\0{name}\x003\0participants".encode()).digest()[:8]

    assert sample(7, 3, NAMES, 2) == set(sorted(NAMES, key=rank)[:2])
    assert sample(7, 3, NAMES[::-1], 2) == sample(7, 3, frozenset(NAMES), 2)
    assert sample(8, 3, NAMES, 2) != sample(7, 3, NAMES, 2)


@pytest.mark.parametrize("count", [0, 6, 7])
def test_without_a_number_or_with_few_nodes_all_take_part(count: int) -> None:
    assert sample(1, 1, NAMES, count) == set(NAMES)
    assert period(6, count) == 1


def test_each_set_of_nodes_is_drawn_equally_often() -> None:
    """Binomial counts: each of 15 pairs within five deviations of 3000 / 15."""
    counts = dict.fromkeys(combinations(NAMES, 2), 0)
    for number in ROUNDS:
        counts[tuple(sorted(sample(1, number, NAMES, 2)))] += 1  # type: ignore[index]
    share = 1 / 15
    deviation = (len(ROUNDS) * share * (1 - share)) ** 0.5
    assert all(abs(one - len(ROUNDS) * share) < 5 * deviation for one in counts.values())


def test_a_node_that_only_some_know_changes_one_name_at_most() -> None:
    changed = 0
    for number in ROUNDS:
        few, more = sample(1, number, NAMES, 3), sample(1, number, (*NAMES, "new"), 3)
        assert len(few - more) == ("new" in more) <= 1
        changed += few != more
    assert changed / len(ROUNDS) == pytest.approx(3 / 7, abs=0.05)


def test_a_period_is_the_rounds_in_which_each_node_contributes_once_on_average() -> None:
    assert [period(20, count) for count in (5, 6, 19)] == [4, 4, 2]
    assert period(1000, 1) == 64


def test_papers_count_the_bytes_of_the_nodes_that_take_part() -> None:
    kind = registry.policy("promptfl").config_type
    assert participating(kind(participants=5), 20) == 5
    assert participating(kind(participants=5), 3) == participating(kind(), 3) == 3
