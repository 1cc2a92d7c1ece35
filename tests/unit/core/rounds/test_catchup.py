"""Catch-up by value: when a node asks for a state, what it answers, and where it goes on."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fednode.core.events import CancelTimer, Effect, Record, Send, SetTimer
from fednode.core.policy import CATCH_UP, DEADLINE, RESEND
from fednode.core.rounds.catchup import CatchUp, Situation
from fednode.core.rounds.decision import Decision, Finish, Merge, Restart, Stay
from fednode.core.rounds.method import MethodState
from fednode.core.rounds.stragglers import Stragglers
from fednode.core.rounds.transfer import ADOPTED, DIGEST, OF, STATE, VOUCH, WANT, WITNESS
from fednode.core.settings import RoundSettings
from fednode.core.types import EMPTY, Message, Tensors
from fednode.testing import frame

NODE = frame("promptfl", peers=tuple("bcde"), rounds=RoundSettings(max=20, deadline_s=7.0))
HELD = MethodState(Tensors({"context": [[1.0]]}))
NOBODY: Mapping[str, int] = {}
THEIRS = MethodState(Tensors({"context": [[9.0]]})).packed()


def at(newest: Mapping[str, int] = NOBODY, live: str = "bcde", number: int = 3) -> Situation:
    """Return where node a of five is; newest: the rounds that peers named."""
    return Situation(number, number - 1, HELD, set(live), set("bcde"), newest)


BEHIND = {"b": 9, "c": 9, "d": 9}
"""Three of five members are in round 9."""


def made(drifts: bool = False, trusting: bool = True) -> CatchUp:
    catch_up = CatchUp(NODE, Stragglers(), drifts=drifts, trusting=trusting)
    catch_up.adopted(2, HELD)
    return catch_up


def of(peer: str, phase: str, tensors: Tensors = EMPTY, /, **facts: int | str) -> Message:
    said = {key: str(value) for key, value in facts.items()}
    return frame("promptfl", name=peer).message(9, phase, tensors, said)


def state(peer: str, after: int = 8, tensors: Tensors = THEIRS) -> Message:
    return of(peer, STATE, tensors, **{ADOPTED: after})


def vouch(peer: str, after: int = 8, digest: str = THEIRS.digest) -> Message:
    facts: dict[str, int | str] = {OF: after, ADOPTED: 8, DIGEST: digest}
    return of(peer, VOUCH, **facts)


def sends(effects: list[Effect]) -> list[tuple[str, str]]:
    return [(one.to, one.message.phase) for one in effects if isinstance(one, Send)]


def kinds(effects: list[Effect]) -> list[str]:
    return [one.kind for one in effects if isinstance(one, Record)]


def asked(catch_up: CatchUp, here: Situation) -> str:
    """Let a node that is behind ask for a state; return the peer that it asks."""
    ((peer, phase),) = sends(catch_up.look_ahead(here, here.number + 1))
    assert phase == WANT
    return peer


def decided(catch_up: CatchUp, told: bool = False, waits: bool = False) -> Decision:
    return catch_up.decide(3, told=told, waits=waits)


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
    effects = made().look_ahead(at(newest), 4)
    assert bool(effects) == asks
    if asks:
        assert effects[0] == SetTimer(CATCH_UP, 7.0)
        ((peer, phase),) = sends(effects)
        assert (phase, newest[peer] >= 5) == (WANT, True)


def test_only_one_attempt_is_under_way_and_only_live_peers_are_asked() -> None:
    catch_up = made()
    assert asked(catch_up, at(BEHIND, live="ce")) == "c"
    assert catch_up.look_ahead(at(BEHIND), 4) == []


def test_a_drifted_node_asks_a_holder_of_the_common_prompts_as_a_round_begins() -> None:
    catch_up = made(drifts=True)
    effects = catch_up.begin(at(live="bcd"), frozenset("de"))
    assert sends(effects) == [("d", WANT)], "e is not live"
    assert made(drifts=True).begin(at(), frozenset()) == []


# Taking over --------------------------------------------------------------------------------------


def test_a_state_is_taken_when_half_of_the_members_hold_it() -> None:
    catch_up, here = made(), at(BEHIND)
    giver = asked(catch_up, here)
    others = [one for one in "bcde" if one != giver]
    effects = catch_up.question(here, state(giver))
    assert sends(effects) == [(one, WITNESS) for one in others]
    assert catch_up.question(here, vouch(others[0])) == []
    assert decided(catch_up) == Stay()
    assert kinds(catch_up.question(here, vouch(others[1]))) == ["round.taken"]
    assert decided(catch_up) == Finish(8, THEIRS)
    assert decided(catch_up) == Stay(), "a destination is used once"


def test_a_state_that_nobody_asked_for_and_a_vouch_of_another_round_count_nothing() -> None:
    catch_up, here = made(), at(BEHIND)
    giver = asked(catch_up, here)
    others = [one for one in "bcde" if one != giver]
    assert catch_up.question(here, state(others[0])) == []
    catch_up.question(here, state(giver))
    for peer in others[:2]:
        assert catch_up.question(here, vouch(peer, after=7)) == []
    assert decided(catch_up) == Stay()


def test_where_half_hold_another_state_one_of_them_is_asked() -> None:
    catch_up, here = made(), at(BEHIND)
    giver = asked(catch_up, here)
    catch_up.question(here, state(giver))
    effects: list[Effect] = []
    for peer in (one for one in "bcde" if one != giver):
        effects += catch_up.question(here, vouch(peer, digest="ab" * 32))
    assert kinds(effects) == ["round.doubted"]
    ((other, phase),) = sends(effects)
    assert (phase, other != giver) == (WANT, True)


def test_where_all_states_differ_the_node_goes_on_in_their_round_with_its_own() -> None:
    catch_up, here = made(), at(BEHIND)
    giver = asked(catch_up, here)
    catch_up.question(here, state(giver))
    for peer in (one for one in "bcde" if one != giver):
        catch_up.question(here, vouch(peer, digest=peer * 64))
    assert decided(catch_up) == Finish(8, None)
    assert catch_up.left() == [CancelTimer(DEADLINE)], "until its timer fires, no next attempt"
    assert catch_up.look_ahead(here, 4) == []


@pytest.mark.parametrize(
    ("told", "waits", "expected"),
    [(True, True, Merge(THEIRS)), (False, False, Restart(THEIRS)), (True, False, Stay())],
)
def test_a_drifted_node_takes_the_state_of_the_round_before(
    told: bool, waits: bool, expected: Decision
) -> None:
    catch_up, here = made(drifts=True), at()
    ((giver, _),) = sends(catch_up.begin(here, frozenset("bcd")))
    catch_up.question(here, state(giver, after=2))
    effects: list[Effect] = []
    for peer in [one for one in "bcd" if one != giver]:
        effects += catch_up.question(here, vouch(peer, after=2))
    assert [one.text for one in effects if isinstance(one, Record)] == [
        f"this node's state differed from that of most: it went on from the state of {giver}"
    ]
    assert decided(catch_up, told, waits) == expected
    assert catch_up.left() == [CancelTimer(DEADLINE), CancelTimer(CATCH_UP)]


@pytest.mark.parametrize(("trusting", "kind"), [(True, "round.mended"), (False, "round.doubted")])
def test_only_a_trusting_merge_takes_the_most_common_state_of_fewer_than_half(
    trusting: bool, kind: str
) -> None:
    catch_up, here = made(drifts=True, trusting=trusting), at()
    ((giver, _),) = sends(catch_up.begin(here, frozenset("bc")))
    catch_up.question(here, state(giver, after=2))
    effects: list[Effect] = []
    for peer in (one for one in "bcde" if one != giver):
        effects += catch_up.question(here, vouch(peer, after=2, digest=""))
    assert kinds(effects) == [kind]


def test_no_word_moves_a_node_beyond_its_last_round() -> None:
    catch_up, here = made(), at({"b": 30, "c": 30, "d": 30})
    giver = asked(catch_up, here)
    catch_up.question(here, state(giver, after=29))
    for peer in [one for one in "bcde" if one != giver][:2]:
        catch_up.question(here, vouch(peer, after=29))
    assert decided(catch_up) == Finish(20, THEIRS)


# Ends of attempts ---------------------------------------------------------------------------------


def test_a_peer_that_withholds_its_state_is_a_straggler_and_asked_last() -> None:
    catch_up, here = made(), at(BEHIND)
    giver = asked(catch_up, here)
    assert kinds(catch_up.time_is_up(here)) == ["round.withheld"]
    assert giver in catch_up.stragglers.records
    again = [asked(catch_up, here)]
    for _ in range(2):
        effects = catch_up.gone(here, again[-1])
        again += [peer for peer, _ in sends(effects)]
    assert again[-1] == giver
    assert kinds(catch_up.gone(here, giver)) == ["round.doubted"], "nobody is left to ask"


def test_witnesses_that_say_nothing_end_the_attempt_at_its_deadline() -> None:
    catch_up, here = made(), at(BEHIND)
    catch_up.question(here, state(asked(catch_up, here)))
    assert kinds(catch_up.time_is_up(here)) == ["round.doubted"]
    assert decided(catch_up) == Stay()
    assert asked(catch_up, here), "the next attempt may begin"


def test_a_state_that_is_too_old_or_undelivered_is_asked_for_elsewhere() -> None:
    catch_up, here = made(), at(BEHIND)
    first = asked(catch_up, here)
    ((second, _),) = sends(catch_up.question(here, state(first, after=1)))
    want = NODE.message(3, WANT)
    ((third, _),) = sends(catch_up.undelivered(here, second, want, again=True))
    assert {first, second, third} == set("bcd")


def test_answers_that_got_lost_are_sent_again() -> None:
    catch_up, here = made(), at()
    answer = NODE.message(3, VOUCH)
    assert catch_up.undelivered(here, "b", answer, again=True)[0] == SetTimer(RESEND, 0.5)
    assert catch_up.resend() == [Send("b", answer)]
    assert catch_up.resend() == []
    assert catch_up.undelivered(here, "b", answer, again=False) == []


# For others ---------------------------------------------------------------------------------------


def test_a_node_gives_its_own_state_a_few_times_between_two_rounds() -> None:
    catch_up = made()
    found = [catch_up.question(at(), of("b", WANT)) for _ in range(5)]
    (first,) = found[0]
    assert isinstance(first, Send)
    message = first.message
    assert (message.phase, message.tensors, message.dtype) == (STATE, HELD.packed(), "float32")
    assert message.facts == {ADOPTED: "2"}
    assert [len(one) for one in found] == [1, 1, 1, 0, 0]


def test_a_node_vouches_for_what_it_held_and_owes_an_answer_on_the_round_under_way() -> None:
    catch_up = made()
    (vouched,) = catch_up.question(at(), of("b", WITNESS, **{OF: 2}))
    assert isinstance(vouched, Send)
    assert vouched.message.facts == {OF: "2", ADOPTED: "2", DIGEST: HELD.packed().digest}
    assert catch_up.question(at(), of("b", WITNESS, **{OF: 3})) == []
    catch_up.adopted(3, HELD)
    (owed,) = catch_up.answer_owed(at(number=4))
    assert isinstance(owed, Send)
    assert (owed.to, owed.message.facts[OF]) == ("b", "3")
    assert catch_up.answer_owed(at(number=4)) == []
