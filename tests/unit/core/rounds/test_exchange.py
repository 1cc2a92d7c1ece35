"""One node's exchange with its peers by value: what it sends, for whom it waits, what it asks."""

from __future__ import annotations

import pytest

from fednode.core.events import Effect, Send, SetTimer
from fednode.core.policy import DEADLINE, RESEND
from fednode.core.rounds.draw import drawn
from fednode.core.rounds.exchange import AGAIN, UPS_MAX, Exchange
from fednode.core.rounds.stragglers import Misses, Stragglers
from fednode.core.settings import RoundSettings
from fednode.core.types import Message
from fednode.testing import frame

NODE = frame("promptfl", peers=("b", "c", "d"), rounds=RoundSettings(deadline_s=7.0))
STAGE = "prompts"


def of(peer: str, number: int = 1, stage: str = STAGE) -> Message:
    return frame("promptfl", name=peer).message(number, stage)


def made(live: str = "bcd", participants: int = 0, number: int = 1) -> Exchange:
    """Return the exchange of node a in a round, with live peers."""
    exchange = Exchange(NODE, Stragglers(), participants)
    for peer in live:
        exchange.up(peer)
    exchange.begin(number)
    return exchange


def number_with(*names: str) -> int:
    """Return a round of which just these of a, b, c and d are drawn."""
    return next(at for at in range(1, 500) if drawn(1, at, set("abcd"), len(names)) == {*names})


def sent(effects: list[Effect]) -> list[tuple[str, str]]:
    return [(one.to, one.message.phase) for one in effects if isinstance(one, Send)]


def opened(exchange: Exchange, number: int = 1) -> Message:
    """Send node a's contribution to all live peers; return it."""
    own = NODE.message(number, STAGE)
    exchange.open(number, STAGE, own)
    return own


# Out ----------------------------------------------------------------------------------------------


def test_an_exchange_opens_with_the_own_contribution_and_the_deadline() -> None:
    effects = made("cb").open(1, STAGE, NODE.message(1, STAGE))
    assert sent(effects) == [("b", STAGE), ("c", STAGE)]
    timers = [one for one in effects if isinstance(one, SetTimer)]
    assert timers == [SetTimer(RESEND, 0.5), SetTimer(DEADLINE, 7.0)]


def test_a_node_that_has_just_started_asks_the_silent_once() -> None:
    exchange = made()
    opened(exchange)
    exchange.take(of("c"), 1, STAGE)
    assert sent(exchange.ask_again(1, STAGE)) == [("b", AGAIN), ("d", AGAIN)]
    assert exchange.ask_again(1, STAGE) == []
    effects = exchange.open(2, STAGE, None)
    assert effects == [SetTimer(DEADLINE, 7.0)], "no contribution, and no first words any more"


def test_a_peer_that_comes_back_gets_what_it_missed_and_a_request_is_answered() -> None:
    exchange = made("bc")
    opened(exchange)
    assert sent(exchange.up("d")) == [("d", STAGE)]
    assert exchange.repeat("b", 1) == [], "still on its way to b"
    exchange.delivered("b", NODE.message(1, STAGE))
    assert sent(exchange.repeat("b", 1)) == [("b", STAGE)]


def test_a_node_repeats_itself_once_a_round_to_a_peer_that_asks() -> None:
    exchange = made("bc")
    own = opened(exchange)
    for peer, found in (("b", [("b", STAGE)]), ("b", []), ("c", [("c", STAGE)]), ("c", [])):
        exchange.delivered(peer, own)
        assert sent(exchange.repeat(peer, 1)) == found
    exchange.delivered("b", own)
    exchange.begin(2)
    assert sent(exchange.repeat("b", 1)) == [("b", STAGE)], "a new round"


def test_a_peer_that_comes_and_goes_is_told_a_few_times_a_round() -> None:
    exchange = made("bc")
    opened(exchange)
    told = 0
    for _ in range(20):
        exchange.down("b")
        told += len(sent(exchange.up("b")))
    assert told == UPS_MAX


def test_a_lost_contribution_is_sent_again_a_moment_later() -> None:
    exchange = made("b")
    own = opened(exchange)
    assert exchange.lost("b", own) == [SetTimer(RESEND, 0.5)]
    assert sent(exchange.resend()) == [("b", STAGE)]
    assert exchange.lost("c", own) == []


# When a stage ends --------------------------------------------------------------------------------


def test_a_stage_ends_when_all_live_peers_contributed_and_have_ours() -> None:
    exchange = made("bc")
    own = opened(exchange)
    for peer in "bc":
        exchange.take(of(peer), 1, STAGE)
    exchange.delivered("b", own)
    assert exchange.ended(1, STAGE) is None, "c does not have it yet"
    exchange.delivered("c", own)
    assert exchange.ended(1, STAGE) == {"b": of("b"), "c": of("c")}


def test_a_dead_peer_is_not_waited_for() -> None:
    exchange = made("bc")
    exchange.delivered("b", opened(exchange))
    exchange.take(of("b"), 1, STAGE)
    assert exchange.ended(1, STAGE) is None
    exchange.down("c")
    assert exchange.ended(1, STAGE) == {"b": of("b")}


def test_a_peer_far_ahead_will_say_no_more_of_this_round() -> None:
    exchange = made("b")
    exchange.open(1, STAGE, None)
    exchange.take(of("b", 2), 1, STAGE)
    assert exchange.ended(1, STAGE) is None
    exchange.take(of("b", 3), 1, STAGE)
    assert exchange.ended(1, STAGE) == {}


def test_at_the_deadline_the_missing_peers_become_stragglers() -> None:
    exchange = made()
    opened(exchange)
    exchange.take(of("c"), 1, STAGE)
    exchange.delivered("c", NODE.message(1, STAGE))
    assert exchange.give_up(1, STAGE, 10.0) == ("b, d", "", {"c": of("c")})
    assert exchange.stragglers.records == {"b": Misses(1, 1), "d": Misses(1, 1)}
    exchange.begin(3)  # the next round that waits for them is a multiple of 2
    exchange.take(of("c", 3), 3, STAGE)
    assert exchange.ended(3, STAGE) == {"c": of("c", 3)}


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
    assert exchange.take(of("b", number, stage), 4, "aggregators")
    assert ("b" not in exchange.stragglers.records) == in_time


# Nodes that are drawn -----------------------------------------------------------------------------


def test_only_drawn_nodes_contribute_and_are_waited_for() -> None:
    number = number_with("b", "c")
    exchange = made(participants=2, number=number)
    assert [name for name in "abcd" if exchange.takes_part(name, number)] == ["b", "c"]
    assert not exchange.takes_part_now
    assert not exchange.take(of("d", number), number, STAGE)
    assert exchange.take(of("b", number), number, STAGE)
    assert exchange.ended(number, STAGE) is None
    assert exchange.take(of("c", number), number, STAGE)
    assert list(exchange.ended(number, STAGE) or ()) == ["b", "c"]


def test_a_node_that_is_not_drawn_and_alone_waits_for_the_deadline() -> None:
    number = number_with("b", "c")
    assert made("", participants=2, number=number).ended(number, STAGE) is None
    assert made("", number=number).ended(number, STAGE) == {}, "a drawn node goes on alone"


def test_a_node_that_heard_nobody_waits_for_stragglers_too() -> None:
    number = number_with("b", "c")
    exchange = made(participants=2, number=number)
    exchange.stragglers.records = {peer: Misses(number, 6) for peer in "bc"}
    assert exchange.ended(number, STAGE) is None
    exchange.take(of("c", number), number, STAGE)
    assert list(exchange.ended(number, STAGE) or ()) == ["c"]


def test_a_peer_that_is_a_round_ahead_is_asked_once_to_repeat_itself() -> None:
    exchange = made()
    exchange.take(of("b", 2), 1, STAGE)
    assert exchange.remind(of("b", 1), 1, STAGE) == []
    assert sent(exchange.remind(of("b", 2), 1, STAGE)) == [("b", AGAIN)]
    assert exchange.remind(of("b", 2), 1, STAGE) == []


def test_drawn_peers_are_asked_as_soon_as_anybody_is_ahead() -> None:
    """A drawn peer may sit out the next rounds, and say nothing by which it were known."""
    number = number_with("b", "c")
    exchange = made(participants=2, number=number)
    later = next(at for at in range(number + 1, 500) if exchange.takes_part("d", at))
    ahead = of("d", later)
    exchange.take(ahead, number, STAGE)
    assert sent(exchange.remind(ahead, number, STAGE)) == [("b", AGAIN), ("c", AGAIN)]
