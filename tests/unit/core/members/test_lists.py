"""Two member lists are compared by digests, and only differences are sent."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from fednode.core.members.lists import (
    ANSWER,
    ASKING,
    DIGESTS,
    ENTRIES_MAX,
    PARTS,
    PARTS_MAX,
    answer,
    asks,
    question,
)
from fednode.core.types import STANDINGS, Update
from fednode.wire.tensors import LIMITS


def drawn(count: int, seed: int = 1) -> list[Update]:
    draw = random.Random(seed)
    return [
        Update(f"n{at:04}", draw.choice(STANDINGS), draw.randrange(3), id=f"id{at}")
        for at in range(count)
    ]


def agreed(listed: Sequence[Update]) -> dict[str, tuple[str, int, str]]:
    """What two nodes can agree on, computed without digests."""
    found = {}
    for one in listed:
        if one.state in {"alive", "suspect"}:
            found[one.name] = ("live", one.incarnation, one.id)
        elif one.state == "revoked":
            found[one.name] = ("revoked", 0, one.id)
    return found


@pytest.mark.parametrize("count", [1, 5, 200, 1024])
def test_equal_lists_cost_one_message(count: int) -> None:
    listed = drawn(count)
    asked = question(listed)
    assert answer(listed[::-1], asked, 1) is None
    assert len(asked[DIGESTS]) <= min(8 * PARTS_MAX, 2 * count + 8) <= LIMITS.fact_characters


@pytest.mark.parametrize("seed", range(20))
def test_every_difference_is_found_and_few_entries_are_sent(seed: int) -> None:
    draw = random.Random(seed)
    ours, theirs = drawn(1000), {one.name: one for one in drawn(1000)}
    for name in draw.sample(sorted(theirs), 3):
        theirs[name] = Update(name, draw.choice(STANDINGS), draw.randrange(5), id=theirs[name].id)
    mine, other = agreed(ours), agreed(list(theirs.values()))
    differ = {name for name in theirs if mine.get(name) != other.get(name)}
    found = answer(list(theirs.values()), question(ours), seed)
    if not differ:
        assert found is None
        return
    assert found is not None
    facts, entries = found
    assert differ <= {one.name for one in entries}
    assert len(entries) <= ENTRIES_MAX
    back = answer(ours, facts, 1)
    assert back is not None
    assert back[0] == {}
    assert {one.name for one in back[1]} == {one.name for one in entries}


def test_a_message_that_asks_for_nothing_gets_no_answer() -> None:
    assert answer(drawn(9), {ANSWER: "yes"}, 1) is None
    assert answer(drawn(9), {}, 1) is None


@pytest.mark.parametrize("text", ["", "0123456", "x" * 8, "0" * 8 * (PARTS_MAX + 1), "0" * 12])
def test_digests_that_no_node_sends_get_no_answer(text: str) -> None:
    assert answer(drawn(9), {ANSWER: "yes", DIGESTS: text}, 1) is None


@pytest.mark.parametrize("text", ["", "3", "a b", "-1 2", "999 1", " ".join(["1"] * 99)])
def test_parts_that_no_node_asks_for_get_no_answer(text: str) -> None:
    assert answer(drawn(9), {ANSWER: "yes", PARTS: text}, 1) is None


def test_no_parts_are_no_fault() -> None:
    assert answer(drawn(9), {ANSWER: "yes", PARTS: "0 0"}, 1) == ({}, drawn(9))


@pytest.mark.parametrize("count", [128, 512, 1024])
def test_an_answer_has_a_bound_and_comparisons_in_turn_cover_all_parts(count: int) -> None:
    """Each member has a new incarnation, so all parts differ."""
    ours = [Update(f"n{at:04}", "alive", 0) for at in range(count)]
    theirs = [Update(one.name, "alive", 1) for one in ours]
    missing = {one.name for one in ours}
    for turn in range(100):
        found = answer(theirs, question(ours), turn)
        assert found is not None
        assert 0 < len(found[1]) <= ENTRIES_MAX
        back = answer(ours, found[0], turn)
        assert back is not None
        assert {one.name for one in back[1]} == {one.name for one in found[1]}
        missing -= {one.name for one in found[1]}
    assert not missing


def test_a_node_that_knows_few_members_gets_whole_parts() -> None:
    listed = drawn(1000)
    found = answer(listed, question(listed[:2]), 1)
    assert found is not None
    assert len(found[1]) == 1000


def test_few_members_all_ask_a_peer_that_is_back_and_of_many_about_as_many() -> None:
    draw = random.Random(1)
    assert all(asks(ASKING, draw) for _ in range(100))
    for live in (100, 1000):
        asking = sum(asks(live, draw) for _ in range(200 * live)) / 200
        assert asking == pytest.approx(ASKING, rel=0.05)
