"""Single steps of mesh-wide rounds: digests, drift, quorum, early messages, states asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from node.core.events import (
    Adopt,
    Adopted,
    Effect,
    Event,
    PeerDown,
    PeerUp,
    Received,
    Record,
    RoundDue,
    Send,
    SetTimer,
    TimerFired,
    Tune,
    Undelivered,
)
from node.core.facts import contributors
from node.core.policy import DEADLINE, RESEND
from node.core.rounds import Staged
from node.core.settings import Barrier
from node.core.transfer import ADOPTED
from node.core.types import Message, Tensors
from node.policies.plan import aggregator
from tests.unit.policies.staged import (
    PEERS,
    PLAN_SHAPES,
    context,
    delivered,
    plan,
    promptfl,
    trained,
)
from tests.unit.policies.tiny import drawn


def waiting(mode: Barrier = "sync", quorum: int = 2, peers: Sequence[str] = PEERS) -> Staged:
    return promptfl(context("promptfl", peers, mode=mode, quorum=quorum))


def begin(policy: Staged, number: int = 1) -> list[Effect]:
    return trained(policy, policy.handle(0.0, RoundDue(number)))


def said(policy: Staged, peer: str, value: float = 3.0, number: int = 1, **set_: Any) -> Received:
    tensors = Tensors({"context": np.full((1, 2), value)})
    based = policy.held.shared.digest
    made = Message(
        "m", "f", "promptfl", peer, number, "prompts", tensors, contributors=based, samples=8
    )
    return Received(replace(made, **set_))


def kinds(effects: Sequence[Effect]) -> list[str]:
    return [one.kind for one in effects if isinstance(one, Record)]


def sends(effects: Sequence[Effect]) -> list[tuple[str, str]]:
    return [(one.to, one.message.phase) for one in effects if isinstance(one, Send)]


def test_a_round_waits_for_all_messages_and_for_all_answers() -> None:
    policy = waiting()
    effects = begin(policy)
    assert sends(effects) == [("b", "prompts"), ("c", "prompts")]
    assert policy.handle(0.0, said(policy, "b")) == []
    assert policy.handle(0.0, said(policy, "c")) == []
    merged = delivered(policy, effects)
    adopt = trained(policy, merged)[-1]
    assert isinstance(adopt, Adopt)
    assert np.allclose(adopt.snapshot.policy.tensors["context"], (1.0 + 3.0 + 3.0) / 3)


def test_what_was_not_delivered_is_sent_again_until_the_peer_is_gone() -> None:
    policy = waiting()
    effects = begin(policy)
    lost = next(one for one in effects if isinstance(one, Send))
    again = policy.handle(0.0, Undelivered(lost.to, lost.message, "unreachable", "nobody"))
    assert [one.name for one in again if isinstance(one, SetTimer)] == [RESEND]
    resent = policy.handle(0.0, TimerFired(RESEND))
    assert ("b", "prompts") in sends(resent)
    policy.handle(0.0, said(policy, "c"))
    delivered(policy, [one for one in effects if isinstance(one, Send) and one.to == "c"])
    assert [type(one) for one in policy.handle(0.0, PeerDown("b"))][-1] is Tune


def test_a_peer_that_refuses_is_not_asked_twice() -> None:
    policy = waiting(peers=("b",))
    effects = begin(policy)
    lost = next(one for one in effects if isinstance(one, Send))
    assert policy.handle(0.0, Undelivered("b", lost.message, "refused", "another mesh")) == []
    assert not sends(policy.handle(0.0, TimerFired("policy.x")))
    assert Tune in [type(one) for one in policy.handle(0.0, said(policy, "b"))]


def test_a_quorum_is_enough() -> None:
    policy = waiting("quorum", quorum=2)
    begin(policy)
    assert Tune in [type(one) for one in policy.handle(0.0, said(policy, "c"))]


def test_the_deadline_names_who_is_missing() -> None:
    policy = waiting()
    begin(policy)
    policy.handle(0.0, said(policy, "b"))
    effects = policy.handle(0.0, TimerFired(DEADLINE))
    (record,) = (one for one in effects if isinstance(one, Record))
    assert record.text == "round 1, prompts: the deadline passed without b, c"
    assert Tune in [type(one) for one in effects], "b has not answered, c has not spoken"


def test_messages_of_the_next_round_are_kept_for_it() -> None:
    policy = waiting(peers=("b",))
    first = begin(policy)
    policy.handle(0.0, said(policy, "b", 5.0, 2))
    policy.handle(0.0, said(policy, "b", 3.0))
    adopted = trained(policy, delivered(policy, first))[-1]
    assert isinstance(adopted, Adopt)
    policy.handle(0.0, Adopted(adopted.snapshot))
    second = begin(policy, 2)
    adopted = trained(policy, delivered(policy, second))[-1]
    assert isinstance(adopted, Adopt)
    assert np.allclose(adopted.snapshot.policy.tensors["context"], (5.0 + 3.0) / 2)


def test_other_prompts_to_begin_from_are_shown() -> None:
    policy = waiting(peers=("b",))
    effects = begin(policy)
    policy.handle(0.0, said(policy, "b", contributors="ab" * 32))
    assert kinds(delivered(policy, effects)) == ["round.drift"]


def test_who_is_two_rounds_behind_asks_for_the_state_and_takes_it() -> None:
    policy = waiting()
    begin(policy)
    asked = policy.handle(0.0, said(policy, "c", number=7))
    assert ("c", "want") in sends(asked)
    shared = Tensors({"shared/context": np.full((1, 2), 9.0)})
    state = Message("m", "f", "promptfl", "c", 7, "state", shared, facts={ADOPTED: "6"})
    assert policy.fault(state) == ""
    assert policy.handle(0.0, Received(replace(state, sender="b"))) == [], "nobody asked b"
    assert sends(policy.handle(0.0, Received(state))) == [("b", "witness")]
    facts = {"of": "6", "adopted": "6", "digest": shared.digest}
    vouch = Message("m", "f", "promptfl", "b", 6, "vouch", facts=facts)
    effects = policy.handle(0.0, Received(vouch))
    assert kinds(effects) == ["round.taken"]
    assert policy.state().round == 6
    assert policy.state().tensors["context"].tolist() == [[9.0, 9.0]]


@pytest.mark.parametrize("value", [90.0, float("nan")])
def test_what_no_peer_would_take_is_not_adopted(value: float) -> None:
    policy = promptfl(replace(context("promptfl", mode="quorum", quorum=2), norm_max=50.0))
    before = policy.state().tensors
    begin(policy)
    merged = policy.handle(0.0, said(policy, "c", value))
    assert kinds(merged) == ["round.aborted"]
    (adopt,) = (one for one in trained(policy, merged) if isinstance(one, Adopt))
    assert adopt.snapshot.policy.round == 1
    assert adopt.snapshot.policy.tensors == before
    policy.handle(0.0, Adopted(adopt.snapshot))
    begin(policy, 2)
    assert kinds(policy.handle(0.0, said(policy, "c", 3.0, number=2))) == []


@pytest.mark.parametrize(("met", "taken"), [("c", "round.taken"), ("bc", "round.doubted")])
def test_one_word_is_enough_only_where_a_second_peer_was_never_met(met: str, taken: str) -> None:
    """With an introducer peers.yaml may list nobody, however large the mesh is."""
    policy = waiting(peers=())
    for peer in met:
        policy.handle(0.0, PeerUp(peer))
    if "b" in met:
        policy.handle(0.0, PeerDown("b"))
    begin(policy)
    policy.handle(0.0, said(policy, "c", number=7))
    shared = Tensors({"shared/context": np.full((1, 2), 9.0)})
    state = Message("m", "f", "promptfl", "c", 7, "state", shared, facts={ADOPTED: "6"})
    assert kinds(policy.handle(0.0, Received(state))) == [taken]


@pytest.mark.parametrize("ending", ["death", "deadline", "old", "undelivered"])
def test_who_gets_no_state_goes_on_with_its_own(ending: str) -> None:
    policy = waiting()
    begin(policy)
    asked = policy.handle(0.0, said(policy, "c", number=7))
    want = next(one for one in asked if isinstance(one, Send))
    shared = Tensors({"shared/context": np.full((1, 2), 9.0)})
    old = Message("m", "f", "promptfl", "c", 7, "state", shared, facts={ADOPTED: "0"})
    endings: dict[str, Event] = {
        "death": PeerDown("c"),
        "deadline": TimerFired(DEADLINE),
        "old": Received(old),
        "undelivered": Undelivered("c", want.message, "unreachable", "nobody"),
    }
    policy.handle(0.0, endings[ending])
    assert policy.phase == "exchanging"
    assert Tune in [type(one) for one in policy.handle(0.0, TimerFired(DEADLINE))]


@pytest.mark.parametrize("adopted", ["", "-1", "x", "1" * 19])
def test_a_state_without_a_round_is_no_state(adopted: str) -> None:
    shared = Tensors({"shared/context": np.zeros((1, 2))})
    facts = {ADOPTED: adopted} if adopted else {}
    state = Message("m", "f", "promptfl", "c", 7, "state", shared, facts=facts)
    assert "does not carry" in waiting().fault(state)


def test_a_second_exchange_over_other_prompts_gives_the_round_up() -> None:
    policy = plan(context("plan", ("b",)))
    before = policy.held.shared
    first = begin(policy)
    local = drawn(Tensors({name: np.zeros(shape) for name, shape in PLAN_SHAPES.items()}), 5)
    told = Message("m", "f", "plan", "b", 1, "prompts", local, before.digest, 8)
    policy.handle(0.0, Received(told))
    second = trained(policy, delivered(policy, first))
    ours = next(one.message for one in second if isinstance(one, Send))
    # The digest is of both contributions: the peer that heard others has another.
    own = next(one.message.tensors for one in first if isinstance(one, Send))
    assert ours.contributors == contributors({"a": own, "b": local})
    other = replace(ours, sender="b", contributors=contributors({"b": local}))
    policy.handle(0.0, Received(other))
    ended = delivered(policy, second)
    assert kinds(ended) == ["round.aborted"]
    adopt = trained(policy, ended)[-1]
    assert isinstance(adopt, Adopt)
    assert adopt.snapshot.policy.tensors == before
    assert adopt.snapshot.policy.round == 1


def test_a_second_exchange_over_the_same_prompts_makes_new_global_ones() -> None:
    policy = plan(context("plan", ("b",)))
    before = policy.held.shared
    first = begin(policy)
    local = drawn(Tensors({name: np.zeros(shape) for name, shape in PLAN_SHAPES.items()}), 5)
    policy.handle(
        0.0, Received(Message("m", "f", "plan", "b", 1, "prompts", local, before.digest, 8))
    )
    own = next(one.message.tensors for one in first if isinstance(one, Send))
    second = trained(policy, delivered(policy, first))
    ours = next(one.message for one in second if isinstance(one, Send))
    policy.handle(0.0, Received(replace(ours, sender="b")))
    adopt = trained(policy, delivered(policy, second))[-1]
    assert isinstance(adopt, Adopt)
    found = adopt.snapshot.policy.tensors
    for name in PLAN_SHAPES:
        wanted = aggregator.aggregate(ours.tensors, name, [own[name], local[name]], False)
        assert np.array_equal(found[name], wanted)
