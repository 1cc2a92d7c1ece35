"""A mix: one row of each sender where possible, and each row of a sender once before any twice."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fednode.core.rounds.gossip import InboxMessage
from fednode.core.types import Array, Tensors
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from fednode.testing import frame


def rows(sender: int, count: int = 4) -> Array:
    """Rows that tell where they come from: sender * 10 + row."""
    return np.array([[10.0 * sender + row] * 2 for row in range(count)], dtype=np.float32)


def mixed(
    senders: int, positions: int = 4, seed: int = 1, kept: bool = False, rows_each: int = 0
) -> list[tuple[int, int]]:
    """Return for each position the sender (0: the node itself) and the row that it got."""
    config = ZeroDFLConfig(positions="kept" if kept else "shuffled")
    inbox = [
        InboxMessage(f"s{at}", 1, Tensors({"context": rows(at, rows_each or positions)}))
        for at in range(1, senders + 1)
    ]
    own = Tensors({"context": rows(0, positions)})
    for change in ZeroDFL(config, frame("zerodfl")).mix(own, inbox, random.Random(seed)):
        own = change.apply(own)
    return [divmod(int(row[0]), 10) for row in own["context"]]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_every_sender_gives_one_row_before_any_gives_two(kept: bool, seed: int) -> None:
    for senders, positions in ((4, 4), (6, 4), (3, 4), (1, 4), (2, 4)):
        origins = mixed(senders, positions, seed, kept)
        times = [sum(s == sender for s, _ in origins) for sender in range(senders + 1)]
        assert times[0] == 0
        assert max(times[1:]) - min(times[1:]) <= 1
        if kept:
            assert [row for _, row in origins] == list(range(positions))


@pytest.mark.parametrize("seed", range(20))
def test_a_row_is_taken_again_only_after_all_rows_of_its_sender(seed: int) -> None:
    for senders, positions in ((1, 4), (2, 4), (3, 4), (2, 8)):
        assert len(set(mixed(senders, positions, seed))) == positions
    assert sorted(mixed(1, 4, seed, rows_each=2)) == [(1, 0), (1, 0), (1, 1), (1, 1)]


def test_shuffled_rows_take_any_place_and_any_sender() -> None:
    seen = {(at, origin) for seed in range(300) for at, origin in enumerate(mixed(2, 2, seed))}
    assert seen == {(at, (sender, row)) for at in (0, 1) for sender in (1, 2) for row in (0, 1)}


def test_the_original_is_left_as_it_is() -> None:
    own = Tensors({"context": rows(0)})
    inbox = [InboxMessage("b", 1, Tensors({"context": rows(3)}))]
    for change in ZeroDFL(ZeroDFLConfig(), frame("zerodfl")).mix(own, inbox, random.Random(1)):
        assert change.apply(own) != own
    assert own == Tensors({"context": rows(0)})
