"""ZeroDFL as the paper has it: whom a node tells, what it counts, what it merges."""

from __future__ import annotations

from collections import Counter

import pytest

from fednode.core.events import (
    Adopt,
    Adopted,
    Delivered,
    PeerDown,
    PeerUp,
    RoundDue,
    Send,
    Tune,
    Tuned,
    TuneFailed,
    Undelivered,
)
from fednode.core.types import EMPTY, Report
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from tests.unit.policies.scenes import (
    CARRY,
    OWN,
    PEERS,
    adopted,
    begun,
    node,
    origin,
    said,
    sends,
    tuned,
)


def test_a_round_tells_s_distinct_peers_and_adopts() -> None:
    policy = node(recipients=3)
    effects = tuned(policy)
    told = [peer for peer, phase in sends(effects) if phase == "prompts"]
    assert len(told) == len(set(told)) == 3
    assert origin(adopted(policy, effects)) == ["a0", "a1", "a2", "a3"]


def test_fewer_peers_than_s_are_all_told() -> None:
    assert len(sends(tuned(node(peers=("b", "c"), recipients=5)))) == 2


def test_only_live_peers_are_told() -> None:
    policy = node(recipients=4)
    policy.handle(0.0, PeerDown("c"))
    assert sorted(peer for peer, _ in sends(tuned(policy))) == ["b", "d", "e"]


def test_counts_rise_with_each_draw_and_steer_the_next_one() -> None:
    policy = node(recipients=1, most=100)
    counts: Counter[str] = Counter()
    for number in range(1, 5):
        effects = tuned(policy, number)
        (send,) = (one for one in effects if isinstance(one, Send))
        adopted(policy, effects)
        counts[send.to] += 1
    assert counts == Counter(PEERS)  # epsilon is tiny: all once before any twice
    assert policy.state().data["chosen"] == dict.fromkeys(PEERS, 1)


@pytest.mark.parametrize("code", ["unreachable", "busy", "refused"])
def test_another_peer_is_told_in_place_of_one_that_failed_and_both_count(code: str) -> None:
    policy = node(recipients=1)
    (send,) = (one for one in tuned(policy) if isinstance(one, Send))
    lost = Undelivered(send.to, send.message, code, "nobody")
    ((other, phase),) = sends(policy.handle(0.0, lost))
    assert phase == "prompts"
    assert other != send.to
    assert policy.state().data["chosen"] == {**dict.fromkeys(PEERS, 0), send.to: 1, other: 1}


def test_a_peer_that_takes_no_rows_is_drawn_no_more_often_than_others() -> None:
    """Each peer is drawn about as often, though b answers "busy" to all rows."""
    policy, drawn = node(recipients=1, most=1000), Counter[str]()
    for number in range(1, 201):
        effects = tuned(policy, number)
        adopted(policy, effects)
        for send in (one for one in effects if isinstance(one, Send)):
            drawn[send.to] += 1
            if send.to == "b":
                policy.handle(0.0, Undelivered("b", send.message, "busy", "later"))
    assert 0.7 * 50 <= drawn["b"] <= 1.2 * 50


def test_when_all_were_tried_a_failed_message_is_let_go() -> None:
    policy = node(recipients=4)
    for send in [one for one in tuned(policy) if isinstance(one, Send)]:
        assert policy.handle(0.0, Undelivered(send.to, send.message, "unreachable", "")) == []


def test_received_rows_replace_own_rows_one_from_each_sender() -> None:
    policy = node()
    for peer in PEERS:
        policy.handle(0.0, said(peer))
    assert sorted(one[0] for one in begun(policy)) == list(PEERS)


def test_a_round_names_the_peers_whose_rows_it_mixed() -> None:
    policy = node()
    policy.handle(0.0, said("c"))
    for number, givers in ((1, ("c",)), (2, ())):
        (adopt,) = (one for one in tuned(policy, number) if isinstance(one, Adopt))
        assert adopt.givers == givers
        policy.handle(0.0, Adopted(adopt.snapshot))


def test_positions_kept_means_row_i_replaces_row_i() -> None:
    policy = node(positions="kept")
    for peer in PEERS:
        policy.handle(0.0, said(peer))
    assert begun(policy) != ["a0", "a1", "a2", "a3"]
    for peer in PEERS:
        policy.handle(0.0, said(peer, number=2))
    assert [one[1] for one in begun(policy, 2)] == ["0", "1", "2", "3"]


def test_one_sender_fills_all_rows_when_nobody_else_wrote() -> None:
    policy = node()
    policy.handle(0.0, said("c"))
    assert {one[0] for one in begun(policy)} == {"c"}


@pytest.mark.parametrize("shared", [1, 2, 3])
def test_partial_sharing_sends_and_replaces_the_first_rows_only(shared: int) -> None:
    policy = node(rows_shared=shared)
    received = said("b").message.tensors["context"][:shared]
    policy.handle(0.0, said("b", tensors=type(OWN)({"context": received})))
    effects = tuned(policy)
    for send in (one for one in effects if isinstance(one, Send)):
        assert send.message.tensors["context"].tolist() == OWN["context"][:shared].tolist()
    adopted(policy, effects)
    policy.handle(0.0, said("b", number=2, tensors=type(OWN)({"context": received})))
    found = begun(policy, 2)
    assert [one[0] for one in found] == ["b"] * shared + ["a"] * (4 - shared)
    assert found[shared:] == [f"a{row}" for row in range(shared, 4)]


def test_sharing_no_row_is_training_alone() -> None:
    policy = node(rows_shared=0)
    effects = tuned(policy)
    assert sends(effects) == []
    assert origin(adopted(policy, effects)) == ["a0", "a1", "a2", "a3"]


def test_with_an_empty_pool_a_node_keeps_its_own() -> None:
    policy = node(peers=())
    assert adopted(policy, tuned(policy)).policy.tensors == OWN


def test_the_inbox_is_used_up_by_a_mix() -> None:
    policy = node()
    policy.handle(0.0, said("b"))
    assert {one[0] for one in begun(policy, 1)} == {"b"}
    assert begun(policy, 2) == ["a0", "a1", "a2", "a3"]


@pytest.mark.parametrize(("optimizer", "carry"), [("keep", CARRY), ("reset", EMPTY)])
def test_momentum_after_a_merge_is_kept_or_reset(optimizer: str, carry: object) -> None:
    policy = node(optimizer=optimizer)
    adopted(policy, tuned(policy))
    policy.handle(0.0, said("b"))
    (tune,) = policy.handle(0.0, RoundDue(2))
    assert isinstance(tune, Tune)
    assert tune.job.carry == carry


@pytest.mark.parametrize(("optimizer", "carry"), [("keep", CARRY), ("reset", EMPTY)])
def test_momentum_after_a_merge_in_lock_step(optimizer: str, carry: object) -> None:
    policy = node(peers=("b",), mode="sync", optimizer=optimizer)
    tuned(policy)
    assert adopted(policy, policy.handle(0.0, said("b"))).policy.carry == carry


def test_rows_that_come_while_a_round_is_stored_are_in_the_next() -> None:
    policy = node()
    effects = tuned(policy)
    for peer in PEERS:
        policy.handle(0.0, said(peer))
    assert origin(adopted(policy, effects)) == ["a0", "a1", "a2", "a3"]
    assert sorted(one[0] for one in begun(policy, 2)) == list(PEERS)


def test_a_round_that_failed_begins_again_from_the_same_rows() -> None:
    policy = node()
    policy.handle(0.0, said("b"))
    (tune,) = policy.handle(0.0, RoundDue(1))
    assert isinstance(tune, Tune)
    policy.handle(0.0, TuneFailed(tune.job, "no memory"))
    assert policy.handle(0.0, RoundDue(1)) == [tune]


def test_without_a_merge_momentum_is_never_reset() -> None:
    policy = node(optimizer="reset")
    assert adopted(policy, tuned(policy)).policy.carry == CARRY


def test_the_last_round_adopts_what_was_tuned_unmerged() -> None:
    policy = node(most=1)
    policy.handle(0.0, said("b"))
    snapshot = adopted(policy, tuned(policy))
    assert snapshot.policy.tensors == snapshot.policy.tuned == OWN


def test_a_peer_that_comes_late_starts_at_the_lowest_count() -> None:
    policy = node(peers=("b", "c"), recipients=2, most=100)
    for number in (1, 2, 3):
        effects = tuned(policy, number)
        adopted(policy, effects)
        for send in (one for one in effects if isinstance(one, Send)):
            policy.handle(0.0, Delivered(send.to, send.message))
    policy.handle(0.0, PeerUp("z"))
    assert policy.state().data["chosen"] == {"b": 3, "c": 3, "z": 3}


# Barriers -----------------------------------------------------------------------------------------


def test_sync_waits_for_every_live_peer_and_says_done_to_those_not_chosen() -> None:
    policy = node(mode="sync", recipients=1)
    effects = tuned(policy)
    assert Counter(phase for _, phase in sends(effects)) == {"prompts": 1, "done": 3}
    for peer in ("b", "c", "d"):
        assert policy.handle(0.0, said(peer, "done")) == []
    adopted(policy, policy.handle(0.0, said("e")))
    assert policy.phase == "idle"


def test_sync_goes_on_when_the_last_missing_peer_dies() -> None:
    policy = node(peers=("b", "c"), mode="sync")
    tuned(policy)
    policy.handle(0.0, said("b"))
    assert policy.phase == "exchanging"
    adopted(policy, policy.handle(0.0, PeerDown("c")))
    assert policy.phase == "idle"


def test_rows_of_the_next_round_are_kept_for_it() -> None:
    policy = node(peers=("b",), mode="sync")
    (tune,) = policy.handle(0.0, RoundDue(1))
    assert isinstance(tune, Tune)
    policy.handle(0.0, said("b", number=1))
    policy.handle(0.0, said("b", number=2, tensors=said("c").message.tensors))
    effects = policy.handle(0.0, Tuned(tune.job, Report(tensors=OWN, metrics={}, samples=8)))
    assert {one[0] for one in origin(adopted(policy, effects))} == {"b"}
    assert {one[0] for one in origin(adopted(policy, tuned(policy, 2)))} == {"c"}


def test_a_node_that_fell_behind_goes_on_where_the_other_proves_to_be() -> None:
    policy = node(peers=("b",), mode="sync", most=20)
    tuned(policy)
    snapshot = adopted(policy, policy.handle(0.0, said("b", number=7)))
    assert snapshot.policy.round == 6


@pytest.mark.parametrize("last", [0, 20])
def test_the_word_of_the_other_moves_nobody(last: int) -> None:
    policy = node(peers=("b",), mode="sync", most=last)
    tuned(policy)
    assert adopted(policy, policy.handle(0.0, said("b", "done", number=7))).policy.round == 1


def test_a_contribution_moves_nobody_beyond_the_round_before_the_last() -> None:
    policy = node(peers=("b",), mode="sync", most=20)
    tuned(policy)
    assert adopted(policy, policy.handle(0.0, said("b", number=10**9))).policy.round == 19


def test_half_of_the_members_move_nobody() -> None:
    policy = node(peers=("b", "c", "d"), mode="sync", most=20)
    tuned(policy)
    for liar in ("b", "c"):
        assert policy.handle(0.0, said(liar, number=10**9)) == []
    assert adopted(policy, policy.handle(0.0, said("d", "done"))).policy.round == 1


def test_a_peer_that_is_back_is_told_how_far_we_are() -> None:
    policy = node(peers=("b",), mode="sync")
    tuned(policy)
    policy.handle(0.0, PeerDown("b"))
    (send,) = policy.handle(0.0, PeerUp("b"))
    assert isinstance(send, Send)
    assert (send.to, send.message.phase, send.message.round) == ("b", "done", 1)


def test_a_restarted_node_goes_on_as_it_would_have() -> None:
    policy = node()
    adopted(policy, tuned(policy))
    for peer in PEERS:
        policy.handle(0.0, said(peer))
    again = ZeroDFL.restore(ZeroDFLConfig(), policy._context, policy.state())
    for peer in PEERS:
        again.handle(0.0, PeerUp(peer))
    assert again.state() == policy.state()
    assert tuned(again, 2) == tuned(policy, 2)
