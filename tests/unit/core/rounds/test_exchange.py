"""One node's exchange with its peers by value: what it sends and repeats, for whom it waits."""

from __future__ import annotations

import pytest

from fednode.core.events import Effect, Send, SetTimer
from fednode.core.policy import DEADLINE, RESEND, RESEND_S
from fednode.core.rounds.exchange import AGAIN, RESEND_MAX_S, WINDOW, Exchange, sample
from fednode.core.rounds.stragglers import Misses, Stragglers
from fednode.core.settings import RoundSettings
from fednode.core.types import Message
from fednode.testing import frame

NODE = frame("promptfl", peers=("b", "c", "d"), rounds=RoundSettings(deadline_s=7.0))
STAGE = "prompts"


def of(peer: str, number: int = 1, stage: str = STAGE) -> Message:
    return frame("promptfl", name=peer).message(number, stage)


def made(live: str = "bcd", count: int = 0, number: int = 1) -> Exchange:
    """Return the exchange of node a in a round, with live peers."""
    exchange = Exchange(NODE, Stragglers(), count)
    exchange.begin(number)
    for peer in live:
        exchange.peer_up(peer)
    exchange.retransmit(number, STAGE)  # the first after a start asks the silent
    exchange.begin(number)
    return exchange


def number_with(*names: str) -> int:
    """Return a round of which just these of a, b, c and d are drawn."""
    return next(at for at in range(1, 500) if sample(1, at, set("abcd"), len(names)) == {*names})


def sent(effects: list[Effect]) -> list[tuple[str, str]]:
    return [(one.to, one.message.phase) for one in effects if isinstance(one, Send)]


def opened(exchange: Exchange, number: int = 1) -> Message:
    """Send node a's contribution to all live peers; return it."""
    own = NODE.message(number, STAGE)
    exchange.broadcast(own)
    return own


def tick(exchange: Exchange, number: int = 1) -> list[tuple[str, str]]:
    """Let the timer fire; return what is sent, by peer and phase."""
    return sent(exchange.retransmit(number, STAGE))


# Out ----------------------------------------------------------------------------------------------


def test_an_exchange_opens_with_the_own_contribution_and_its_timers() -> None:
    exchange = Exchange(NODE, Stragglers(), 0)
    assert exchange.peer_up("c") == [SetTimer(RESEND, RESEND_S)]
    assert exchange.peer_up("b") == [], "the timer runs"
    exchange.begin(1)
    effects = exchange.broadcast(NODE.message(1, STAGE))
    assert sent(effects) == [("b", STAGE), ("c", STAGE)]
    assert effects[2:] == [SetTimer(DEADLINE, 7.0), SetTimer(RESEND, RESEND_S)]
    assert Exchange(NODE, Stragglers(), 0).broadcast(None) == [SetTimer(DEADLINE, 7.0)]


def test_a_state_that_did_not_get_through_is_not_sent_again_in_a_later_round() -> None:
    exchange = made("b")
    own = opened(exchange)
    state = exchange.send("b", NODE.message(1, "state"))
    exchange.acked("b", own)
    exchange.lost("b", state.message)
    exchange.begin(2)
    assert ("b", "state") not in tick(exchange, 2)


def test_the_timer_starts_again_with_each_round_and_gets_slower_within_one() -> None:
    exchange = made()
    for number in (1, 2):
        exchange.begin(number)
        assert SetTimer(RESEND, RESEND_S) in exchange.broadcast(None)
        effects = [exchange.retransmit(number, STAGE) for _ in range(5)]
        assert effects == [[SetTimer(RESEND, one)] for one in (1.0, *[RESEND_MAX_S] * 4)]
    assert exchange.retransmit(2, "") == [], "no stage is under way, and nothing is lost"


def test_a_node_that_has_just_started_asks_the_silent_once() -> None:
    exchange = Exchange(NODE, Stragglers(), 0)
    for peer in "bcd":
        exchange.peer_up(peer)
    exchange.begin(1)
    exchange.broadcast(None)
    exchange.store(of("c"), 1, STAGE)
    assert tick(exchange) == [("b", AGAIN), ("d", AGAIN)]
    assert tick(exchange) == []


def test_a_lost_contribution_is_sent_again_while_its_peer_does_not_have_it() -> None:
    exchange = made()
    own = opened(exchange)
    for peer in "dcb":
        exchange.lost(peer, own)
    assert exchange.lost("e", own) == [], "e was never told"
    exchange.acked("c", own)
    exchange.acked("b", NODE.message(2, STAGE))  # of a round that was not said
    exchange.peer_down("d")
    assert tick(exchange) == [("b", STAGE)]
    assert tick(exchange) == [], "it is on its way"


def test_a_peer_that_comes_back_or_asks_gets_what_it_does_not_have_once_a_timer() -> None:
    exchange = made("bc")
    own = opened(exchange)
    assert sent(exchange.peer_up("d")) == [("d", STAGE)]
    assert sent(exchange.repeat("b", 1)) == [], "still on its way to b"
    told: list[tuple[str, str]] = []
    for _ in range(20):
        exchange.acked("b", own)
        told += sent(exchange.repeat("b", 1))
        exchange.peer_down("c")
        told += sent(exchange.peer_up("c"))
    assert told == [("b", STAGE), ("c", STAGE)]
    assert tick(exchange) == [("b", STAGE), ("c", STAGE)]
    exchange.acked("b", own)
    assert sent(exchange.repeat("b", 1)) == [], "the timer has just repeated it"
    assert tick(exchange) == [("b", STAGE)]
    assert tick(exchange) == []


def test_who_was_away_gets_the_messages_of_a_period_in_order_and_no_older_ones() -> None:
    for count in (0, 1):
        exchange = made("b", count=count)
        for number in range(1, 10):
            exchange.begin(number)
            exchange.broadcast(NODE.message(number, STAGE))
        exchange.begin(10)
        effects = exchange.peer_up("c")
        numbers = [one.message.round for one in effects if isinstance(one, Send)]
        assert numbers == list(range(10 - exchange.period, 10))
        assert exchange.period == (4 if count else 1)
        effects = exchange.repeat("d", 9)
        assert [one.message.round for one in effects if isinstance(one, Send)] == [9]


# In -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1])
def test_contributions_of_this_round_and_of_the_next_ones_are_stored_for_their_stage(
    count: int,
) -> None:
    exchange = made(count=count, number=5)
    for number in range(1, 20):
        for peer in "dcb":
            exchange.store(of(peer, number), 5, STAGE)
    stored = [at for at in range(20) if exchange.received(at, STAGE)]
    window = range(5, 5 + WINDOW * exchange.period + 1)
    assert stored == [at for at in window if not count or exchange._sample_of(at) != {"a"}]
    assert count or list(exchange.received(5, STAGE)) == ["b", "c", "d"], "sorted by sender"
    assert exchange.received(5, "aggregators") == {}
    exchange.begin(6)
    assert exchange.received(5, STAGE) == {}


def test_the_newest_round_of_a_peer_never_goes_back_and_counts_far_messages() -> None:
    exchange = made()
    for number in (2, 90, 3):
        exchange.store(of("b", number), 1, STAGE)
    assert exchange.claimed == {"b": 90}
    assert exchange.contributed == {}, "a message without arrays is no contribution"


# When a stage ends --------------------------------------------------------------------------------


def test_a_stage_ends_when_all_live_peers_contributed_and_have_ours() -> None:
    exchange = made("bc")
    own = opened(exchange)
    for peer in "bc":
        exchange.store(of(peer), 1, STAGE)
    exchange.acked("b", own)
    assert exchange.complete(1, STAGE) is None, "c does not have it yet"
    exchange.acked("c", own)
    assert exchange.complete(1, STAGE) == {"b": of("b"), "c": of("c")}


def test_a_dead_peer_is_not_waited_for() -> None:
    exchange = made("bc")
    exchange.acked("b", opened(exchange))
    exchange.store(of("b"), 1, STAGE)
    assert exchange.complete(1, STAGE) is None
    exchange.peer_down("c")
    assert exchange.complete(1, STAGE) == {"b": of("b")}


def test_a_peer_far_ahead_will_say_no_more_of_this_round() -> None:
    exchange = made("b")
    exchange.broadcast(None)
    exchange.store(of("b", 2), 1, STAGE)
    assert exchange.complete(1, STAGE) is None
    exchange.store(of("b", 3), 1, STAGE)
    assert exchange.complete(1, STAGE) == {}


def test_at_the_deadline_the_missing_peers_become_stragglers() -> None:
    exchange = made()
    opened(exchange)
    exchange.store(of("c"), 1, STAGE)
    exchange.acked("c", NODE.message(1, STAGE))
    assert exchange.give_up(1, STAGE, 10.0) == ("b, d", "", {"c": of("c")})
    assert exchange.stragglers.records == {"b": Misses(1, 1), "d": Misses(1, 1)}
    exchange.begin(3)  # the next round that waits for them is a multiple of 2
    exchange.store(of("c", 3), 3, STAGE)
    assert exchange.complete(3, STAGE) == {"c": of("c", 3)}


@pytest.mark.parametrize(
    ("number", "stage", "in_time"),
    [(4, "aggregators", True), (4, STAGE, False), (5, "aggregators", False)],
)
def test_a_peer_is_in_time_with_the_last_stage_of_this_round(
    number: int, stage: str, in_time: bool
) -> None:
    """A peer that sends only the first of two stages makes all others wait."""
    exchange = made(number=4)
    exchange.stragglers.missed(["b"], 3)
    assert exchange.store(of("b", number, stage), 4, "aggregators")
    assert ("b" not in exchange.stragglers.records) == in_time


# Nodes that are drawn -----------------------------------------------------------------------------


def test_only_drawn_nodes_contribute_and_are_waited_for() -> None:
    number = number_with("b", "c")
    exchange = made(count=2, number=number)
    assert [name for name in "abcd" if exchange.participates(name, number)] == ["b", "c"]
    assert not exchange.participates_now
    assert not exchange.store(of("d", number), number, STAGE)
    assert exchange.store(of("b", number), number, STAGE)
    assert exchange.complete(number, STAGE) is None
    assert exchange.store(of("c", number), number, STAGE)
    assert list(exchange.complete(number, STAGE) or ()) == ["b", "c"]


def test_a_node_that_is_not_drawn_and_alone_waits_for_the_deadline() -> None:
    number = number_with("b", "c")
    assert made("", count=2, number=number).complete(number, STAGE) is None
    assert made("", number=number).complete(number, STAGE) == {}, "a drawn node goes on alone"


def test_a_node_that_heard_nobody_waits_for_stragglers_too() -> None:
    number = number_with("b", "c")
    exchange = made(count=2, number=number)
    exchange.stragglers.records = {peer: Misses(number, 6) for peer in "bc"}
    assert exchange.complete(number, STAGE) is None
    exchange.store(of("c", number), number, STAGE)
    assert list(exchange.complete(number, STAGE) or ()) == ["c"]


def test_a_silent_peer_that_is_in_a_later_round_is_asked_to_repeat_itself() -> None:
    exchange = made()
    exchange.store(of("c", 1), 1, STAGE)
    assert tick(exchange) == []
    for peer in "bc":
        exchange.store(of(peer, 2), 1, STAGE)
    assert tick(exchange) == [("b", AGAIN)]
    assert tick(exchange) == [("b", AGAIN)], "until it is heard, more and more slowly"


def test_sampled_peers_are_asked_as_soon_as_anybody_is_in_a_later_round() -> None:
    """A sampled peer may sit out the next rounds, and say nothing by which it were known."""
    number = number_with("b", "c")
    exchange = made(count=2, number=number)
    later = next(at for at in range(number + 1, 500) if exchange.participates("d", at))
    assert tick(exchange, number) == []
    exchange.store(of("d", later), number, STAGE)
    assert tick(exchange, number) == [("b", AGAIN), ("c", AGAIN)]
