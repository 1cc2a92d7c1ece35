"""Single steps of mesh-wide rounds: digests, drift, early messages, states asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fednode.core import events as ev
from fednode.core.facts import merged_digest
from fednode.core.policy import CATCH_UP, DEADLINE, RESEND, RESEND_S
from fednode.core.rounds.averaging import Averaging, AveragingConfig
from fednode.core.rounds.catchup import ADOPTED
from fednode.core.rounds.engine import Rounds
from fednode.core.rounds.method import Contribution, MethodState, Round
from fednode.core.types import OWN, Message, Tensors
from fednode.policies import plan as aggregator
from tests.unit.core.rounds.staged import (
    PEERS,
    PLAN_SHAPES,
    context,
    delivered,
    plan,
    promptfl,
    trained,
    up,
)
from tests.unit.policies.tiny import drawn


def spoken(**set_: Any) -> Message:
    """Return a peer's message."""
    return Message(**{"mesh": "m", "fingerprint": "f", "policy": "promptfl", **set_})


def of_plan(local: Tensors, base: str) -> Message:
    """Return node b's local prompts in round 1 of PLAN."""
    given = {"sender": "b", "round": 1, "phase": "prompts", "tensors": local}
    return spoken(**given, policy="plan", base=base, samples=8)


def waiting(peers: Sequence[str] = PEERS) -> Rounds:
    return promptfl(context("promptfl", peers))


def begin(policy: Rounds, number: int = 1) -> list[ev.Effect]:
    return trained(policy, policy.handle(0.0, ev.RoundDue(number)))


def said(
    policy: Rounds, peer: str, value: float = 3.0, number: int = 1, **set_: Any
) -> ev.Received:
    tensors = Tensors({"context": np.full((1, 2), value)})
    based = policy.now.held.digest
    made = spoken(
        sender=peer, round=number, phase="prompts", tensors=tensors, base=based, samples=8
    )
    return ev.Received(replace(made, **set_))


def kinds(effects: Sequence[ev.Effect]) -> list[str]:
    return [one.kind for one in effects if isinstance(one, ev.Record)]


def sends(effects: Sequence[ev.Effect]) -> list[tuple[str, str]]:
    return [(one.to, one.message.phase) for one in effects if isinstance(one, ev.Send)]


def test_a_round_waits_for_all_messages_and_for_all_answers() -> None:
    policy = waiting()
    effects = begin(policy)
    assert sends(effects) == [("b", "prompts"), ("c", "prompts")]
    assert policy.handle(0.0, said(policy, "b")) == []
    assert policy.handle(0.0, said(policy, "c")) == []
    merged = delivered(policy, effects)
    adopt = trained(policy, merged)[-1]
    assert isinstance(adopt, ev.Adopt)
    assert np.allclose(adopt.snapshot.policy.tensors["context"], (1.0 + 3.0 + 3.0) / 3)


def test_what_was_not_delivered_is_sent_again_until_the_peer_is_gone() -> None:
    policy = waiting()
    effects = begin(policy)
    lost = next(one for one in effects if isinstance(one, ev.Send))
    assert ev.SetTimer(RESEND, RESEND_S) in effects
    policy.handle(0.0, ev.Undelivered(lost.to, lost.message, "unreachable", "nobody"))
    resent = policy.handle(0.0, ev.TimerFired(RESEND))
    assert ("b", "prompts") in sends(resent)
    policy.handle(0.0, said(policy, "c"))
    delivered(policy, [one for one in effects if isinstance(one, ev.Send) and one.to == "c"])
    assert [type(one) for one in policy.handle(0.0, ev.PeerDown("b"))][-1] is ev.Tune


def test_a_peer_that_refuses_is_not_asked_twice() -> None:
    policy = waiting(peers=("b",))
    effects = begin(policy)
    lost = next(one for one in effects if isinstance(one, ev.Send))
    assert policy.handle(0.0, ev.Undelivered("b", lost.message, "refused", "another mesh")) == []
    assert not sends(policy.handle(0.0, ev.TimerFired("policy.x")))
    assert ev.Tune in [type(one) for one in policy.handle(0.0, said(policy, "b"))]


def test_the_deadline_names_who_is_missing() -> None:
    policy = waiting()
    begin(policy)
    policy.handle(0.0, said(policy, "b"))
    effects = policy.handle(0.0, ev.TimerFired(DEADLINE))
    (record,) = (one for one in effects if isinstance(one, ev.Record))
    assert record.text == (
        "round 1: c sent nothing and b did not acknowledge this node's contribution before the "
        "deadline (rounds.deadline_s); this node goes on without"
    )
    assert [*policy.stragglers.records] == ["b", "c"], "b has not answered, c has not spoken"
    assert ev.Tune in [type(one) for one in effects]


def test_a_peer_that_was_heard_sent_something() -> None:
    policy = waiting()
    begin(policy)
    for peer in PEERS:
        policy.handle(0.0, said(policy, peer))
    effects = policy.handle(0.0, ev.TimerFired(DEADLINE))
    (record,) = (one for one in effects if isinstance(one, ev.Record))
    assert record.text.startswith("round 1: b, c did not acknowledge this node's contribution")


def test_a_contribution_to_a_round_that_is_over_counts_nothing() -> None:
    policy = waiting(peers=("b",))
    begin(policy)
    adopt = trained(policy, policy.handle(0.0, ev.TimerFired(DEADLINE)))[-1]
    assert policy.handle(0.0, said(policy, "b")) == []
    assert [*policy.stragglers.records] == ["b"], "it came after the deadline"
    assert isinstance(adopt, ev.Adopt)
    policy.handle(0.0, ev.Adopted(adopt.snapshot))
    policy.handle(0.0, said(policy, "b", number=2))
    assert policy.stragglers.records == {} or begin(policy, 2)


def test_where_all_others_left_nobody_is_drawn_or_waited_for() -> None:
    policy = promptfl(context("promptfl", ("b",)), participants=1)
    policy.handle(0.0, ev.PeerDown("b"))
    for number in range(1, 9):
        due = policy.handle(0.0, ev.RoundDue(number, members=frozenset()))
        adopt = trained(policy, trained(policy, due))[-1]
        assert isinstance(adopt, ev.Adopt)
        assert policy.now.members == {"a"}
        policy.handle(0.0, ev.Adopted(adopt.snapshot))


def test_messages_of_the_next_round_are_kept_for_it() -> None:
    policy = waiting(peers=("b",))
    first = begin(policy)
    policy.handle(0.0, said(policy, "b", 5.0, 2))
    policy.handle(0.0, said(policy, "b", 3.0))
    adopted = trained(policy, delivered(policy, first))[-1]
    assert isinstance(adopted, ev.Adopt)
    policy.handle(0.0, ev.Adopted(adopted.snapshot))
    second = begin(policy, 2)
    adopted = trained(policy, delivered(policy, second))[-1]
    assert isinstance(adopted, ev.Adopt)
    assert np.allclose(adopted.snapshot.policy.tensors["context"], (5.0 + 3.0) / 2)


def test_other_prompts_to_begin_from_are_shown() -> None:
    policy = waiting(peers=("b",))
    effects = begin(policy)
    policy.handle(0.0, said(policy, "b", base="ab" * 32))
    assert kinds(delivered(policy, effects)) == ["round.drift"]


NINES = Tensors({"shared/context": np.full((1, 2), 9.0)})


def behind(policy: Rounds, peers: str = "bc", number: int = 7) -> str:
    """Let peers contribute to a far round and claim nothing; return who is asked for its state."""
    asked: list[str] = []
    for peer in peers:
        effects = policy.handle(0.0, said(policy, peer, number=number, base=""))
        asked += [one for one, phase in sends(effects) if phase == "want"]
    return "".join(asked)


def state_of(peer: str, after: int = 6) -> ev.Received:
    facts = {ADOPTED: str(after)}
    return ev.Received(spoken(sender=peer, round=7, phase="state", tensors=NINES, facts=facts))


def claims(
    policy: Rounds, peers: str, digest: str = NINES.digest, after: int = 6
) -> list[ev.Effect]:
    """Let peers say one after the other which state they hold."""
    effects: list[ev.Effect] = []
    for peer in peers:
        effects += policy.handle(0.0, ev.Claimed(peer, after, digest))
    return effects


def without(peers: str, giver: str) -> str:
    return peers.replace(giver, "")


def test_who_is_behind_most_members_takes_the_state_that_they_hold() -> None:
    policy = waiting(peers="bcde")
    begin(policy)
    assert behind(policy, "bc") == "", "two of five are fewer than half"
    assert policy.activity == "exchanging"
    giver = behind(policy, "d")
    others = without("bcde", giver)
    assert policy.fault(state_of(giver).message) == ""
    assert policy.handle(0.0, state_of(others[0])) == [], "nobody asked it"
    assert policy.handle(0.0, state_of(giver)) == []
    assert claims(policy, others[0]) == []
    effects = claims(policy, others[1])
    assert kinds(effects) == ["round.taken"]
    assert policy.state().round == 6
    assert policy.state().tensors["context"].tolist() == [[9.0, 9.0]]
    (adopt,) = (one for one in effects if isinstance(one, ev.Adopt))
    assert adopt.givers == (giver,)


def test_contributions_claim_what_their_senders_began_from() -> None:
    policy = waiting(peers="bcde")
    begin(policy)
    giver = behind(policy, "bcd")
    policy.handle(0.0, state_of(giver))
    effects: list[ev.Effect] = []
    for peer in without("bcd", giver):
        assert kinds(effects) == []
        effects = [*policy.handle(0.0, said(policy, peer, number=7, base=NINES.digest))]
    assert kinds(effects) == ["round.taken"]
    assert policy.state().round == 6


def test_two_of_seven_who_claim_the_same_state_move_nobody() -> None:
    policy = waiting(peers="bcdefg")
    begin(policy)
    assert behind(policy, "bc", 1000) == ""
    assert behind(policy, "de") in {"b", "c", "d", "e"}, "now four of seven are beyond"
    policy = waiting(peers="bcdefg")
    begin(policy)
    giver = behind(policy, "bcde")
    others = without("bcdefg", giver)
    policy.handle(0.0, state_of(giver))
    claims(policy, others[0])
    for honest in others[1:-1]:
        assert claims(policy, honest, honest * 64) == []
    effects = claims(policy, others[-1], "ab" * 32)
    assert kinds(effects) == ["round.doubted", "round.skipped"], "no state of so many members"
    assert policy.state().tensors["context"].tolist() == [[0.0, 0.0]]


def test_a_round_does_not_wait_for_a_state_and_a_tuning_ends_first() -> None:
    policy = waiting(peers="bc")
    tune = policy.handle(0.0, ev.RoundDue(1))
    giver = behind(policy, "bc")
    assert policy.activity == "tuning"
    policy.handle(0.0, state_of(giver))
    assert claims(policy, without("bc", giver))
    assert policy.activity == "tuning"
    assert any(isinstance(one, ev.Adopt) for one in trained(policy, tune))
    assert policy.state().round == 6


def test_a_state_that_is_withheld_costs_no_round() -> None:
    policy = waiting(peers="bcde")
    begin(policy)
    giver = behind(policy, "bcd")
    assert ev.Tune in [type(one) for one in policy.handle(0.0, ev.TimerFired(DEADLINE))], "no wait"
    effects = policy.handle(0.0, ev.TimerFired(CATCH_UP))
    assert kinds(effects) == ["round.withheld"]
    ((other, phase),) = sends(effects)
    assert (phase, other in without("bcd", giver)) == ("want", True)


def test_contributions_name_the_whole_state_that_all_nodes_hold_alike() -> None:
    """Two nodes with equal prompts and different arrays hold different states."""
    policy = waiting()
    (first, _) = (one.message for one in begin(policy) if isinstance(one, ev.Send))
    assert first.base == policy.state().digest == policy.now.held.packed().digest
    other = replace(policy.state(), arrays=Tensors({"pool": [1.0], OWN + "mine": [2.0]}))
    assert other.digest != policy.state().digest
    assert replace(other, arrays=Tensors({"pool": [1.0]})).digest == other.digest


@pytest.mark.parametrize("value", [90.0, float("nan")])
def test_what_no_peer_would_take_is_not_adopted(value: float) -> None:
    policy = promptfl(replace(context("promptfl", "c"), norm_max=50.0))
    before = policy.state().tensors
    delivered(policy, begin(policy))
    merged = policy.handle(0.0, said(policy, "c", value))
    assert kinds(merged) == ["round.aborted"]
    (adopt,) = (one for one in trained(policy, merged) if isinstance(one, ev.Adopt))
    assert adopt.snapshot.policy.round == 1
    assert adopt.snapshot.policy.tensors == before
    assert adopt.givers == (), "the last prompts are kept, so no peer's are merged"
    policy.handle(0.0, ev.Adopted(adopt.snapshot))
    delivered(policy, begin(policy, 2))
    assert kinds(policy.handle(0.0, said(policy, "c", 3.0, number=2))) == []


@pytest.mark.parametrize("adopted", ["", "-1", "x", "1" * 19])
def test_a_state_without_a_round_is_no_state(adopted: str) -> None:
    shared = Tensors({"shared/context": np.zeros((1, 2))})
    facts = {ADOPTED: adopted} if adopted else {}
    state = spoken(sender="c", round=7, phase="state", tensors=shared, facts=facts)
    assert "does not carry" in waiting().fault(state)


def test_a_second_exchange_over_other_prompts_gives_the_round_up() -> None:
    policy = plan(context("plan", ("b",)))
    before = policy.now.held
    first = begin(policy)
    local = drawn(Tensors({name: np.zeros(shape) for name, shape in PLAN_SHAPES.items()}), 5)
    told = of_plan(local, before.digest)
    policy.handle(0.0, ev.Received(told))
    second = trained(policy, delivered(policy, first))
    ours = next(one.message for one in second if isinstance(one, ev.Send))
    # The digest is of both contributions: the peer that heard others has another.
    own = next(one.message.tensors for one in first if isinstance(one, ev.Send))
    assert ours.base == merged_digest({"a": own, "b": local})
    other = replace(ours, sender="b", base=merged_digest({"b": local}))
    policy.handle(0.0, ev.Received(other))
    ended = delivered(policy, second)
    assert kinds(ended) == ["round.aborted"]
    adopt = trained(policy, ended)[-1]
    assert isinstance(adopt, ev.Adopt)
    assert adopt.snapshot.policy.tensors == before.shared
    assert adopt.snapshot.policy.round == 1
    assert adopt.givers == (), "the first stage merged a peer's prompts, the round did not"


def test_a_second_exchange_over_the_same_prompts_makes_new_global_ones() -> None:
    policy = plan(context("plan", ("b",)))
    before = policy.now.held
    first = begin(policy)
    local = drawn(Tensors({name: np.zeros(shape) for name, shape in PLAN_SHAPES.items()}), 5)
    policy.handle(
        0.0,
        ev.Received(of_plan(local, before.digest)),
    )
    own = next(one.message.tensors for one in first if isinstance(one, ev.Send))
    second = trained(policy, delivered(policy, first))
    ours = next(one.message for one in second if isinstance(one, ev.Send))
    policy.handle(0.0, ev.Received(replace(ours, sender="b")))
    adopt = trained(policy, delivered(policy, second))[-1]
    assert isinstance(adopt, ev.Adopt)
    found = adopt.snapshot.policy.tensors
    for name in PLAN_SHAPES:
        wanted = aggregator.global_prompts(ours.tensors, name, [own[name], local[name]], False)
        assert np.array_equal(found[name], wanted)


def test_a_peer_is_in_time_only_with_the_last_stage_of_a_round() -> None:
    """A peer that sends PLAN's first stage alone makes all others wait for the second."""
    policy = plan(context("plan", ("b",)))
    policy.stragglers.missed(["b"], 1)
    first = begin(policy, 2)  # in round 2 it is waited for again
    local = drawn(Tensors({name: np.zeros(shape) for name, shape in PLAN_SHAPES.items()}), 5)
    told = of_plan(local, policy.now.held.digest)
    policy.handle(0.0, ev.Received(replace(told, round=2)))
    assert "b" in policy.stragglers.records
    second = trained(policy, delivered(policy, first))
    ours = next(one.message for one in second if isinstance(one, ev.Send))
    policy.handle(0.0, ev.Received(replace(ours, sender="b")))
    assert policy.stragglers.records == {}


class Picky(Averaging):
    """A method that fails where numbers of its peers are not as it likes them."""

    name = "promptfl"

    def merge(self, now: Round, given: Sequence[Contribution]) -> MethodState:
        values = {float(one.tensors["context"][0, 0]) for one in given}
        if 7.0 in values or {5.0, 6.0} <= values:
            raise ValueError(f"cannot merge {sorted(values)}")
        return super().merge(now, given)


@pytest.mark.parametrize(
    ("values", "blamed", "merged"),
    [
        ((7.0, 3.0), ["b"], (1.0 + 3.0) / 2),
        ((3.0, 7.0), ["c"], (1.0 + 3.0) / 2),
        ((7.0, 7.0), ["b", "c"], 1.0),
        ((5.0, 6.0), [None], 0.0),
    ],
)
def test_a_contribution_that_cannot_be_merged_is_left_out(
    values: Sequence[float], blamed: list[str | None], merged: float
) -> None:
    start = Tensors({"context": np.zeros((1, 2))})
    policy = up(Picky.start(AveragingConfig(), context("promptfl", PEERS), start))
    effects = begin(policy)
    for peer, value in zip(PEERS, values, strict=True):
        policy.handle(0.0, said(policy, peer, value))
    effects = delivered(policy, effects)
    records = [one for one in effects if isinstance(one, ev.Record) and one.cause]
    assert [one.fields.get("peer") for one in records] == blamed
    adopt = trained(policy, effects)[-1]
    assert isinstance(adopt, ev.Adopt)
    assert np.allclose(adopt.snapshot.policy.tensors["context"], merged)
