"""The pool: newest message per sender, bounded age, one row per sender where possible."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fednode.core.types import Array
from fednode.policies.zerodfl.pool import Entry, Pool, merge


def rows(sender: int, count: int = 4) -> Array:
    """Rows that tell where they come from: sender * 10 + row."""
    return np.array([[10.0 * sender + row] * 2 for row in range(count)], dtype=np.float32)


def pool(senders: int, age_limit: int = 1) -> Pool:
    made = Pool(age_limit)
    for sender in range(senders):
        made.add(Entry(f"s{sender}", 1, rows(sender)))
    return made


def origins(chosen: dict[int, Array]) -> dict[int, tuple[int, int]]:
    """Position -> (sender, row)."""
    return {at: divmod(int(row[0]), 10) for at, row in chosen.items()}


def test_the_newest_message_of_a_sender_wins_whatever_the_order() -> None:
    made = Pool(3)
    assert made.add(Entry("a", 5, rows(5)))
    assert not made.add(Entry("a", 4, rows(4)))
    assert not made.add(Entry("a", 5, rows(6)))
    assert made.add(Entry("a", 6, rows(7)))
    assert [(entry.sender, entry.round) for entry in made] == [("a", 6)]
    assert len(made) == 1


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_an_entry_serves_as_many_merges_as_its_age_limit(limit: int) -> None:
    made = pool(1, limit)
    for _ in range(limit):
        assert len(made) == 1
        made.grow_older()
    assert len(made) == 0


def test_a_new_message_is_young_again() -> None:
    made = pool(1, 2)
    made.grow_older()
    made.add(Entry("s0", 2, rows(0)))
    made.grow_older()
    assert len(made) == 1


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_every_sender_gives_one_row_before_any_gives_two(keep: bool, seed: int) -> None:
    for senders, positions in ((4, 4), (6, 4), (3, 4), (1, 4), (2, 4)):
        chosen = origins(pool(senders).draw(positions, random.Random(seed), keep))
        assert sorted(chosen) == list(range(positions))
        times = [sum(s == sender for s, _ in chosen.values()) for sender in range(senders)]
        assert max(times) - min(times) <= 1
        if keep:
            assert all(at == row for at, (_, row) in chosen.items())


@pytest.mark.parametrize("seed", range(20))
def test_a_row_is_taken_again_only_after_all_rows_of_its_sender(seed: int) -> None:
    for senders, positions in ((1, 4), (2, 4), (3, 4), (2, 8)):
        chosen = origins(pool(senders).draw(positions, random.Random(seed), False))
        assert len(set(chosen.values())) == positions
    short = Pool(1)
    short.add(Entry("a", 1, rows(1, 2)))
    chosen = origins(short.draw(4, random.Random(seed), False))
    assert sorted(chosen.values()) == [(1, 0), (1, 0), (1, 1), (1, 1)]


def test_shuffled_rows_take_any_place_and_any_sender() -> None:
    seen = {
        (at, origin)
        for seed in range(300)
        for at, origin in origins(pool(2).draw(2, random.Random(seed), False)).items()
    }
    assert seen == {(at, (sender, row)) for at in (0, 1) for sender in (0, 1) for row in range(4)}


def test_an_empty_pool_gives_nothing() -> None:
    assert Pool(1).draw(4, random.Random(1), False) == {}


def test_merge_replaces_the_chosen_rows_and_leaves_the_rest_and_the_original() -> None:
    own = rows(0)
    merged = merge(own, {1: rows(3)[2], 3: rows(2)[0]})
    assert merged[:, 0].tolist() == [0.0, 32.0, 2.0, 20.0]
    assert own[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0]
