"""Catch-up by value: when a node asks for a state, whose claims it counts, and where it goes on."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fednode.core.events import CancelTimer, Effect, Record, Send, SetTimer
from fednode.core.policy import CATCH_UP, DEADLINE
from fednode.core.rounds.catchup import (
    ADOPTED,
    CLAIMS_KEPT,
    STATE,
    WANT,
    CatchUp,
    Found,
)
from fednode.core.rounds.exchange import Exchange
from fednode.core.rounds.method import MethodState
from fednode.core.rounds.stragglers import Stragglers
from fednode.core.settings import RoundSettings
from fednode.core.types import EMPTY, Message, Tensors
from fednode.testing import frame

NODE = frame("promptfl", peers=tuple("bcde"), rounds=RoundSettings(max=20, deadline_s=7.0))
HELD = MethodState(Tensors({"context": [[1.0]]}))
NOBODY: Mapping[str, int] = {}
THEIRS = MethodState(Tensors({"context": [[9.0]]})).packed()


BEHIND = {"b": 9, "c": 9, "d": 9}
"""Three of five members are in round 9."""


def made(
    newest: Mapping[str, int] = NOBODY,
    live: str = "bcde",
    drifts: bool = False,
    trusting: bool = True,
    period: int = 1,
) -> CatchUp:
    """Return the catch-up of node a of five, in round 3; newest: the rounds that peers named."""
    peers = Exchange(NODE, Stragglers(), 0)
    peers.live, peers.contributed, peers.period = set(live), dict(newest), period
    catch_up = CatchUp(peers, drifts=drifts, trusting=trusting)
    return held(catch_up, 2)


def held(catch_up: CatchUp, *rounds: int) -> CatchUp:
    """Let the node have adopted some rounds, and be in round 3."""
    for number in rounds:
        catch_up.adopted(number, HELD)
    catch_up.number = 3
    return catch_up


def of(peer: str, phase: str, tensors: Tensors = EMPTY, /, **facts: int | str) -> Message:
    said = {key: str(value) for key, value in facts.items()}
    return frame("promptfl", name=peer).message(9, phase, tensors, said)


def state(peer: str, after: int = 8, tensors: Tensors = THEIRS) -> Message:
    return of(peer, STATE, tensors, **{ADOPTED: after})


def sends(effects: list[Effect]) -> list[tuple[str, str]]:
    return [(one.to, one.message.phase) for one in effects if isinstance(one, Send)]


def claims(
    catch_up: CatchUp, peers: str, digest: str = THEIRS.digest, after: int = 8
) -> list[Effect]:
    """Let peers claim one after the other that they hold a state."""
    return [one for peer in peers for one in catch_up.claim(peer, after, digest)]


def kinds(effects: list[Effect]) -> list[str]:
    return [one.kind for one in effects if isinstance(one, Record)]


def asked(catch_up: CatchUp) -> str:
    """Let a node that is behind ask for a state; return the peer that it asks."""
    ((peer, phase),) = sends(catch_up.look_ahead(catch_up.number + 1))
    assert phase == WANT
    return peer


# Asking -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("newest", "asks"),
    [
        ({}, False),
        ({"b": 9, "c": 9}, False),  # two of five are fewer than half
        ({"b": 5, "c": 5, "d": 4}, False),  # the third is one round ahead only
        ({"b": 9, "c": 5, "d": 5}, True),
    ],
)
def test_a_node_asks_if_half_of_the_members_are_two_rounds_ahead(
    newest: dict[str, int], asks: bool
) -> None:
    effects = made(newest).look_ahead(4)
    assert bool(effects) == asks
    if asks:
        assert effects[0] == SetTimer(CATCH_UP, 7.0)
        ((peer, phase),) = sends(effects)
        assert (phase, newest[peer] >= 5) == (WANT, True)


def test_only_one_attempt_is_under_way_and_only_live_peers_are_asked() -> None:
    catch_up = made(BEHIND, live="ce")
    assert asked(catch_up) == "c"
    assert catch_up.look_ahead(4) == []


@pytest.mark.parametrize(
    ("said", "trusting", "asks"),
    [
        ({"b": "x", "c": "x"}, False, "bc"),
        ({"b": "x", "c": "x", "d": "y"}, False, "bc"),
        ({"b": "x", "c": "y", "d": "z"}, False, ""),  # a liar makes all differ
        ({"b": "x"}, False, ""),
        ({"b": "z" * 64}, True, "b"),  # of two the greater counts, on all nodes
        ({"b": "0"}, True, ""),
        ({"b": "", "c": ""}, True, ""),
    ],
)
@pytest.mark.parametrize("after", [1, 2])
def test_a_drifted_node_asks_who_holds_what_most_hold_as_a_round_begins(
    said: dict[str, str], trusting: bool, asks: str, after: int
) -> None:
    catch_up = made(drifts=True, trusting=trusting)
    held(catch_up, 1, 2)
    for peer, digest in said.items():
        catch_up.claim(peer, after, digest)
    effects = catch_up.begin()
    assert {peer for peer, _ in sends(effects)} <= {*asks}
    last_is_known = after == 1 or len(said) > 2
    assert bool(effects) == (bool(asks) and last_is_known)
    assert made(drifts=False).begin() == []


def test_a_node_that_holds_what_most_hold_asks_nobody_whatever_it_held_before() -> None:
    catch_up = made(drifts=True)
    held(catch_up, 1, 2)
    claims(catch_up, "bcd", "ab" * 32, after=1)
    claims(catch_up, "bcd", HELD.digest, after=2)
    assert catch_up.begin() == []


def test_only_live_holders_are_asked() -> None:
    catch_up = made(live="bd", drifts=True)
    claims(catch_up, "cde", after=2)
    assert sends(catch_up.begin()) == [("d", WANT)]


# Taking over --------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [True, False], ids=["claims first", "state first"])
def test_a_state_is_taken_when_more_than_half_of_the_members_claim_it(early: bool) -> None:
    catch_up = made(BEHIND)
    giver = asked(catch_up)
    others = "".join(one for one in "bcde" if one != giver)[:2]
    before = claims(catch_up, others) if early else []
    effects = catch_up.question(state(giver))
    assert before == []
    assert kinds(effects) == (["round.taken"] if early else [])
    assert kinds(claims(catch_up, others)) == ([] if early else ["round.taken"])
    catch_up.number = 9
    assert catch_up.after() is None
    catch_up.number = 3
    found = catch_up.after()
    assert found == Found(8, THEIRS)
    assert found is not None
    assert found.giver == giver, "it counts as a peer whose prompts the node holds"
    assert catch_up.after() is None, "it goes there once"


def test_what_nobody_asked_for_and_a_claim_of_another_round_count_nothing() -> None:
    catch_up = made(BEHIND)
    giver = asked(catch_up)
    others = "".join(one for one in "bcde" if one != giver)
    assert catch_up.question(state(others[0])) == []
    catch_up.question(state(giver))
    assert claims(catch_up, others[:2], after=7) == []
    assert claims(catch_up, "fg") == [], "they are no members"
    assert catch_up.after() is None


def test_of_each_peer_the_latest_claims_count() -> None:
    catch_up = made(BEHIND)
    giver = asked(catch_up)
    catch_up.question(state(giver))
    first, second, third = (one for one in "bcde" if one != giver)
    claims(catch_up, first)
    for number in range(9, 9 + CLAIMS_KEPT):
        claims(catch_up, first, after=number)
    claims(catch_up, second)
    claims(catch_up, second, "ab" * 32)
    assert claims(catch_up, third) == [], "one gives it, one claims it, two did once"
    assert kinds(claims(catch_up, first)) == ["round.taken"]


def test_where_most_claim_another_state_one_of_them_is_asked() -> None:
    catch_up = made(BEHIND)
    giver = asked(catch_up)
    catch_up.question(state(giver))
    others = "".join(one for one in "bcde" if one != giver)
    effects = claims(catch_up, others, "ab" * 32)
    assert kinds(effects) == ["round.doubted"]
    ((other, phase),) = sends(effects)
    assert (phase, other != giver) == (WANT, True)


def test_where_all_states_differ_the_node_goes_on_in_their_round_with_its_own() -> None:
    catch_up = made(BEHIND)
    giver = asked(catch_up)
    catch_up.question(state(giver))
    for peer in (one for one in "bcde" if one != giver):
        catch_up.claim(peer, 8, peer * 64)
    assert catch_up.after() == Found(8)
    assert catch_up.cancel_timers() == [CancelTimer(DEADLINE)], (
        "until its timer fires, no next attempt"
    )
    assert catch_up.look_ahead(4) == []


def test_a_drifted_node_merges_into_the_state_of_the_round_before() -> None:
    catch_up = made(drifts=True)
    claims(catch_up, "bcd", after=2)
    ((giver, _),) = sends(catch_up.begin())
    effects = catch_up.question(state(giver, after=2))
    assert [one.text for one in effects if isinstance(one, Record)] == [
        f"this node took over the prompts of {giver}: its prompts differed from those of most"
    ]
    assert catch_up.after() is None
    found = []
    for catch_up.number in (2, 4, 3, 3):
        found.append(catch_up.before())
    assert found == [None, None, THEIRS, None]
    assert catch_up.cancel_timers() == [CancelTimer(DEADLINE), CancelTimer(CATCH_UP)]


@pytest.mark.parametrize(("trusting", "kind"), [(True, "round.mended"), (False, "round.doubted")])
def test_only_a_trusting_merge_takes_the_most_common_state_of_fewer_than_half(
    trusting: bool, kind: str
) -> None:
    catch_up = made(drifts=True, trusting=trusting)
    claims(catch_up, "bc", after=2)
    for peer in "de":
        catch_up.claim(peer, 2, peer * 64)
    held(catch_up, 2)
    ((giver, _),) = sends(catch_up.begin())
    assert kinds(catch_up.question(state(giver, after=2))) == [kind]


def test_a_state_that_came_in_an_earlier_round_is_forgotten() -> None:
    catch_up = made(BEHIND, drifts=True)
    catch_up.question(state(asked(catch_up)))
    catch_up.number = 9
    assert catch_up.begin() == [], "a state after round 8 is of use in round 9"
    catch_up.number, catch_up.peers.contributed = 10, {"b": 12, "c": 12, "d": 12}
    assert sends(catch_up.begin()), "the next attempt begins"


def test_no_claim_moves_a_node_beyond_its_last_round() -> None:
    catch_up = made({"b": 30, "c": 30, "d": 30})
    giver = asked(catch_up)
    catch_up.question(state(giver, after=29))
    claims(catch_up, "".join(one for one in "bcde" if one != giver)[:2], after=29)
    assert catch_up.after() == Found(20, THEIRS)


def test_where_nodes_are_sampled_as_many_are_asked_as_must_hold_the_state() -> None:
    """Few contributions claim a state then; each state that is given is a claim."""
    catch_up = made(drifts=True, period=3)
    claims(catch_up, "c", after=1)
    held(catch_up, 1, 2)
    first = [peer for peer, _ in sends(catch_up.begin())]
    assert (len(first), "c" in first) == (3, True), "whoever is known to hold another state"
    (late,) = sends(catch_up.question(state(first[0], after=1)))
    assert {late[0], *first} == {*"bcde"}, "one that has not adopted the round yet is replaced"
    assert catch_up.question(state(first[1], after=2)) == []
    assert catch_up.question(state(first[2], after=2)) == []
    assert kinds(catch_up.question(state(late[0], after=2))) == ["round.taken"]
    assert catch_up.before() == THEIRS


# Ends of attempts ---------------------------------------------------------------------------------


def test_a_peer_that_withholds_its_state_is_a_straggler_and_asked_last() -> None:
    catch_up = made(BEHIND)
    giver = asked(catch_up)
    assert kinds(catch_up.time_is_up()) == ["round.withheld"]
    assert giver in catch_up.peers.stragglers.records
    again = [asked(catch_up)]
    for _ in range(2):
        effects = catch_up.gone(again[-1])
        again += [peer for peer, _ in sends(effects)]
    assert again[-1] == giver
    assert kinds(catch_up.gone(giver)) == ["round.doubted"], "nobody is left to ask"


def test_claims_that_do_not_come_end_the_attempt_at_its_deadline() -> None:
    catch_up = made(BEHIND)
    catch_up.question(state(asked(catch_up)))
    assert kinds(catch_up.time_is_up()) == ["round.doubted"]
    assert catch_up.after() is None
    assert asked(catch_up), "the next attempt may begin"


def test_a_state_that_is_too_old_or_undelivered_is_asked_for_elsewhere() -> None:
    catch_up = made(BEHIND)
    first = asked(catch_up)
    ((second, _),) = sends(catch_up.question(state(first, after=1)))
    ((third, _),) = sends(catch_up.no_state(second))
    assert {first, second, third} == set("bcd")


def test_states_that_got_lost_are_sent_again() -> None:
    catch_up = made()
    (answer,) = catch_up.question(of("b", WANT))
    assert isinstance(answer, Send)
    peers = catch_up.peers
    assert peers.retransmit(3, "") == []
    peers.lost("b", answer.message)
    assert peers.retransmit(3, "") == [answer]
    peers.acked("b", answer.message)
    peers.lost("b", answer.message)
    assert peers.retransmit(3, "") == []


# For others ---------------------------------------------------------------------------------------


def test_a_node_gives_its_own_state_a_few_times_between_two_rounds() -> None:
    catch_up = made()
    found = [catch_up.question(of("b", WANT)) for _ in range(5)]
    (first,) = found[0]
    assert isinstance(first, Send)
    message = first.message
    assert (message.phase, message.tensors, message.dtype) == (STATE, HELD.packed(), "float32")
    assert message.facts == {ADOPTED: "2"}
    assert [len(one) for one in found] == [1, 1, 1, 0, 0]
