"""What a late peer costs, and that all nodes let the same peers rest in the same rounds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

import pytest

from fednode.core.events import Record
from fednode.core.rounds.lateness import FIRST_REST, LAST_ROUNDS, LATE, REST_MAX, Lateness
from fednode.core.settings import RoundSettings
from fednode.core.types import Message
from fednode.testing.player import frame

STAGE = "prompts"
NAMES = "abcd"


def of(peer: str, number: int, **late: int) -> Message:
    """Return a contribution that lets some peers rest until given rounds."""
    facts = {LATE + name: str(until) for name, until in late.items()}
    return frame("promptfl", name=peer).message(number, STAGE, facts=facts)


def votes(said: Mapping[str, Message], own: str = "") -> dict[str, Mapping[str, str]]:
    """Return what contributions say of peers that rest, but this node's own."""
    return {peer: message.facts for peer, message in said.items() if peer != own}


class Clocks:
    """Nodes a, b and c, whose rounds take a second, and d, which is `late` seconds later."""

    def __init__(self, late: float, deadline_s: float = 60.0, jitter: float = 0.0) -> None:
        settings = RoundSettings(max=0, deadline_s=deadline_s)
        self.nodes = {name: Lateness(name, settings) for name in NAMES}
        self.late, self.jitter, self.now, self.number = late, jitter, 0.0, 0

    def round(self) -> float:
        """Run one round; return how long it lasted."""
        self.number += 1
        for node in self.nodes.values():
            node.begin(self.number, set(NAMES) - {node.name})
        said = {
            name: replace(of(name, self.number), facts=dict(node.ballot))
            for name, node in self.nodes.items()
        }
        rests = {
            node.resting(self.number, votes(said, node.name), NAMES) for node in self.nodes.values()
        }
        assert len(rests) == 1, "all nodes let the same peers rest"
        (resting,) = rests
        lasts = 1.0 if resting else 1.0 + self.late
        for at, (name, node) in enumerate(self.nodes.items()):
            ready = self.now + 1.0 + self.jitter * at
            for message in said.values():
                node.heard(message)
            node.opened(ready)
            for peer in set(NAMES) - {name} - resting:
                node.ready(STAGE, peer, ready + (self.late if peer == "d" else 0.0))
            node.ended(self.number, STAGE, set(NAMES) - {name} - resting, self.now + lasts)
        self.now += lasts
        return lasts


@pytest.mark.parametrize("late", [1.05, 1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 9.0, 12.0, 16.0, 19.0])
@pytest.mark.parametrize("jitter", [0.0, 0.03])
def test_a_late_peer_costs_at_most_another_median_round(late: float, jitter: float) -> None:
    """On average over any twenty rounds, where the deadline is at most twenty median rounds.

    The first round counts for nothing: nodes begin it at different times.
    """
    clocks = Clocks(late, deadline_s=20.0, jitter=jitter)
    rounds = [clocks.round() for _ in range(200)]
    assert statistics.median(rounds) < 1.1 or late < 2.0
    for first in range(1, 180):
        assert sum(rounds[first : first + 20]) <= 2 * 20, (first, late)


def test_where_the_deadline_is_very_long_the_average_holds_over_more_rounds() -> None:
    clocks = Clocks(200.0, deadline_s=250.0)
    rounds = [clocks.round() for _ in range(4000)]
    assert sum(rounds[2000:]) <= 2 * 2000


def test_a_peer_that_is_a_little_late_is_always_waited_for() -> None:
    clocks = Clocks(0.8)
    assert [clocks.round() for _ in range(100)] == pytest.approx([1.8] * 100)


def test_a_moment_of_weakness_costs_no_rest() -> None:
    clocks = Clocks(0.0)
    clocks.round()
    clocks.late = 4.0
    clocks.round()
    clocks.late = 0.0
    assert [clocks.round() for _ in range(5)] == pytest.approx([1.0] * 5)
    assert not any(node.ballot for node in clocks.nodes.values())


def test_a_peer_that_rests_knows_until_when() -> None:
    clocks = Clocks(20.0)
    for _ in range(4):
        clocks.round()
    d = clocks.nodes["d"]
    assert FIRST_REST < d.own < 2 * FIRST_REST
    (said,) = d.said()
    assert isinstance(said, Record)
    assert said.kind == "round.resting"
    assert d.said() == [], "once for each rest"


def test_without_the_setting_nobody_rests() -> None:
    node = Lateness("a", RoundSettings(lateness=None))
    node.begin(1, set("bcd"))
    for number in range(1, 30):
        node.opened(1.0)
        assert node.ended(number, STAGE, set("bcd"), 1000.0) == {}


# Votes --------------------------------------------------------------------------------------------


def voting(number: int = 5, most: int = 0) -> Lateness:
    node = Lateness("a", RoundSettings(max=most))
    node.begin(number, set("bcd"))
    return node


def test_more_than_half_of_the_others_must_name_a_peer() -> None:
    one = {"b": of("b", 5, d=9), "c": of("c", 5), "d": of("d", 5)}
    two = {**one, "c": of("c", 5, d=9)}
    assert voting().resting(5, votes(one), NAMES) == frozenset()
    assert voting().resting(5, votes(two), NAMES) == {"d"}
    assert voting(9).resting(9, votes(two), NAMES) == frozenset(), "it takes part again in round 9"


def test_nobody_votes_on_itself() -> None:
    said = {"b": of("b", 5, d=9), "c": of("c", 5), "d": of("d", 5, d=9)}
    assert voting().resting(5, votes(said), NAMES) == frozenset()


def test_fewer_than_half_rest_or_none() -> None:
    said = {peer: of(peer, 5, c=9, d=9) for peer in "bcd"}
    assert voting().resting(5, votes(said), NAMES) == frozenset()
    assert voting().resting(5, votes({**said, "e": of("e", 5, c=9, d=9)}), "abcde") == {"c", "d"}


def test_of_two_nodes_none_rests() -> None:
    assert voting().resting(5, votes({"b": of("b", 5, a=9)}), "ab") == frozenset()


def test_a_node_may_rest_itself() -> None:
    said = {peer: of(peer, 5, a=12) for peer in "bc"} | {"d": of("d", 5)}
    node = voting()
    assert node.resting(5, votes(said), NAMES) == {"a"}
    for message in said.values():
        node.heard(message)
    node.begin(6, set("bcd"))
    assert node.own == 12
    node.begin(12, set("bcd"))
    assert node.own == 0


def test_one_member_sends_nobody_to_rest() -> None:
    node = voting()
    node.heard(of("b", 10**6, a=10**6 + 50))
    node.begin(6, set("bcd"))
    assert node.own == 0


def test_nobody_rests_in_the_last_rounds() -> None:
    said = {peer: of(peer, 5, d=99) for peer in "bcd"}
    assert voting(5, most=5 + LAST_ROUNDS).resting(5, votes(said), NAMES) == {"d"}
    assert voting(5, most=4 + LAST_ROUNDS).resting(5, votes(said), NAMES) == frozenset()


@pytest.mark.parametrize("said", ["", "x", "-3", "1e9", "9" * 40, "²"])
def test_what_is_no_round_is_no_vote(said: str) -> None:
    facts = {LATE + "a": said}
    node = voting()
    wrong = {peer: replace(of(peer, 5), facts=facts) for peer in "bcd"}
    assert node.resting(5, votes(wrong), NAMES) == frozenset()
    for message in wrong.values():
        node.heard(message)
    node.begin(6, set("bcd"))
    assert node.own == 0


def test_no_vote_lasts_for_ever() -> None:
    node = voting()
    for peer in "bcd":
        node.heard(of(peer, 5, a=10**12))
    node.begin(6, set("bcd"))
    assert node.own == 5 + 2 * REST_MAX
