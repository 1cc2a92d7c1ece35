"""Gossip by value: which news a message carries, in which order, and how often."""

from __future__ import annotations

import math

import pytest

from fednode.core.members.swim import NEWS_MAX, RETRANSMIT_MULT, Gossip
from fednode.core.members.table import Members
from fednode.core.types import MemberUpdate


def gossip(*names: str) -> tuple[Members, Gossip]:
    members = Members(names)
    return members, Gossip(members)


def names(news: tuple[MemberUpdate, ...]) -> list[str]:
    return [update.name for update in news]


def test_the_least_told_items_come_first_and_equals_by_name() -> None:
    _, news = gossip("b", "c", "d", "e")
    for name in ("d", "c"):
        news.add(MemberUpdate(name, "dead", 1))
    assert names(news.take("b")) == ["c", "d"]
    news.add(MemberUpdate("e", "dead", 1))
    assert names(news.take("b")) == ["e", "c", "d"]


def test_a_peer_hears_what_is_held_of_itself_and_not_twice() -> None:
    members, news = gossip("b", "c")
    assert news.about("b") == []  # nothing is known of it yet
    members.heard("b", 1.0, 1)
    news.add(MemberUpdate("b", "dead", 7))
    news.add(MemberUpdate("c", "dead", 1))
    assert news.take("b") == (MemberUpdate("b", "alive", 0), MemberUpdate("c", "dead", 1))


@pytest.mark.parametrize("count", [2, 6, 30])
def test_an_item_is_told_by_the_logarithm_of_the_mesh_and_then_forgotten(count: int) -> None:
    _, news = gossip(*(f"p{number:02}" for number in range(count)))
    news.add(MemberUpdate("p00", "dead", 1))
    told = 0
    while news.take("p01"):
        told += 1
    assert told == math.ceil(RETRANSMIT_MULT * math.log2(count + 2))


def test_newer_news_of_a_member_replaces_older_news_and_is_told_anew() -> None:
    _, news = gossip("b", "c", "d")
    news.add(MemberUpdate("c", "suspect", 1))
    news.take("b")
    news.add(MemberUpdate("d", "dead", 1))
    news.add(MemberUpdate("c", "dead", 1))
    assert news.take("b") == (MemberUpdate("c", "dead", 1), MemberUpdate("d", "dead", 1))


def test_a_message_carries_a_bounded_number_of_items() -> None:
    members, news = gossip(*(f"p{number:02}" for number in range(NEWS_MAX + 5)))
    members.heard("p00", 1.0, 1)
    for number in range(1, NEWS_MAX + 5):
        news.add(MemberUpdate(f"p{number:02}", "dead", 1))
    assert len(news.take("p00")) == NEWS_MAX + 1  # and the item about p00


def test_a_member_that_refuses_this_node_is_told_of_revoked_keys_in_turns() -> None:
    gone = [f"x{number:02}" for number in range(NEWS_MAX + 3)]
    members, news = gossip("b", *gone)
    for name in gone:
        members.weigh(MemberUpdate(name, "revoked", 0, "", "id", b"proof"), 1.0, 1.0)
    members.heard("b", 1.0, 1)
    assert names(tuple(news.about("b"))) == ["b"], "one that takes news gets it with pings"
    members.refused("b", 1.0, "other settings")
    first, second = (set(names(tuple(news.about("b")))) for _ in range(2))
    assert len(first) == len(second) == NEWS_MAX
    assert first | second == set(gone)
