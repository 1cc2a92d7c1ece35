"""Two member lists are compared by digests, and only differences are sent."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from fednode.core.members.lists import ANSWER, DIGESTS, PARTS, PARTS_MAX, answer, question
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
    assert answer(listed[::-1], asked) is None
    assert len(asked[DIGESTS]) <= min(8 * PARTS_MAX, 2 * count + 8) <= LIMITS.fact_characters


@pytest.mark.parametrize("seed", range(20))
def test_every_difference_is_found_and_few_entries_are_sent(seed: int) -> None:
    draw = random.Random(seed)
    ours, theirs = drawn(1000), {one.name: one for one in drawn(1000)}
    for name in draw.sample(sorted(theirs), 3):
        theirs[name] = Update(name, draw.choice(STANDINGS), draw.randrange(5), id=theirs[name].id)
    mine, other = agreed(ours), agreed(list(theirs.values()))
    differ = {name for name in theirs if mine.get(name) != other.get(name)}
    found = answer(list(theirs.values()), question(ours))
    if not differ:
        assert found is None
        return
    assert found is not None
    facts, entries = found
    assert differ <= {one.name for one in entries}
    assert len(entries) < 150
    back = answer(ours, facts)
    assert back is not None
    assert back[0] == {}
    assert {one.name for one in back[1]} == {one.name for one in entries}


def test_an_earlier_version_gets_the_whole_list() -> None:
    listed = drawn(9)
    assert answer(listed, {ANSWER: "yes"}) == ({}, listed)
    assert answer(listed, {}) is None


@pytest.mark.parametrize("text", ["", "0123456", "x" * 8, "0" * 8 * (PARTS_MAX + 1), "0" * 12])
def test_digests_that_no_node_sends_get_no_answer(text: str) -> None:
    assert answer(drawn(9), {ANSWER: "yes", DIGESTS: text}) is None


@pytest.mark.parametrize("text", ["", "3", "a b", "-1 2", "999 1", " ".join(["1"] * 99)])
def test_parts_that_no_node_asks_for_get_no_answer(text: str) -> None:
    assert answer(drawn(9), {ANSWER: "yes", PARTS: text}) is None


def test_no_parts_are_no_fault() -> None:
    assert answer(drawn(9), {ANSWER: "yes", PARTS: "0 0"}) == ({}, drawn(9))
