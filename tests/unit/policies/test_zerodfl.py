"""ZeroDFL as the paper has it: recipients, counts, the mix, the gate, what is sent again, bytes."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest

from fednode.core import events as ev
from fednode.core.events import (
    Adopt,
    Adopted,
    Delivered,
    PeerDown,
    PeerUp,
    Received,
    Record,
    RoundDue,
    Send,
    Tune,
    Tuned,
    TuneFailed,
    Undelivered,
)
from fednode.core.policy import RESEND, RESEND_S
from fednode.core.rounds.gossip import Gossip, InboxMessage
from fednode.core.settings import Barrier, RoundSettings
from fednode.core.types import EMPTY, MEASURE, Array, Report, Tensors
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig, draw_recipients, probabilities
from fednode.testing import frame
from tests.unit.core.scenes import PROMPTS, context, message, only
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
    policy.handle(0.0, said("b"))  # the same message once more
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
    again = cast("Gossip", ZeroDFL.restore(ZeroDFLConfig(), policy.context, policy.state()))
    for peer in PEERS:
        again.handle(0.0, PeerUp(peer))
    assert again.state() == policy.state()
    assert tuned(again, 2) == tuned(policy, 2)


COUNTS = {"a": 0, "b": 1, "c": 2, "d": 5, "e": 10}
DRAWS = 20_000
# 99.9 % points of the chi-square distribution, by degrees of freedom.
CRITICAL = {4: 18.467, 19: 43.820}


def exact(counts: Mapping[str, int], epsilon: Fraction) -> dict[str, Fraction]:
    """Equations 1 and 2 in rational numbers."""
    weights = {name: 1 / (Fraction(count) + epsilon) for name, count in counts.items()}
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


def chi_square(seen: Mapping[Any, int], expected: Mapping[Any, Fraction]) -> float:
    total = sum(seen.values())
    return sum(
        (seen.get(cell, 0) - float(share * total)) ** 2 / float(share * total)
        for cell, share in expected.items()
    )


@pytest.mark.parametrize("epsilon", [Fraction(1, 1_000_000), Fraction(1, 2), Fraction(1)])
def test_probabilities_are_equation_2(epsilon: Fraction) -> None:
    found = probabilities(COUNTS, COUNTS, float(epsilon))
    for name, share in exact(COUNTS, epsilon).items():
        assert found[name] == pytest.approx(float(share), rel=1e-12)


def test_a_small_epsilon_takes_the_unchosen_first() -> None:
    found = probabilities({"a": 0, "b": 1, "c": 1}, "abc", 1e-6)
    assert found["a"] == pytest.approx(1 - 2e-6, abs=1e-8)


def test_only_those_who_can_be_chosen_have_a_share() -> None:
    found = probabilities(COUNTS, ["b", "zoe"], 1.0)
    assert found == pytest.approx({"b": 1 / 3, "zoe": 2 / 3})


def draws(uniform: bool = False) -> Counter[str]:
    """First recipients of many rounds, each with the generator that a node makes for it."""
    context = frame("zerodfl", name="me", peers=tuple(COUNTS), seed=7)
    counts = dict.fromkeys(COUNTS, 1) if uniform else COUNTS
    found: Counter[str] = Counter()
    for number in range(DRAWS):
        generator = context.random(number, "recipients")
        found.update(draw_recipients(counts, COUNTS, 1, 1.0, generator))
    return found


def test_draws_follow_equation_2() -> None:
    assert chi_square(draws(), exact(COUNTS, Fraction(1))) < CRITICAL[4]


def test_the_chi_square_test_can_fail() -> None:
    assert chi_square(draws(uniform=True), exact(COUNTS, Fraction(1))) > CRITICAL[4]


def test_two_recipients_follow_equation_2_renormalised_after_the_first() -> None:
    first = exact(COUNTS, Fraction(1))
    expected = {
        (one, two): first[one] * first[two] / (1 - first[one])
        for one, two in itertools.permutations(COUNTS, 2)
    }
    generator = random.Random(3)
    found = Counter(tuple(draw_recipients(COUNTS, COUNTS, 2, 1.0, generator)) for _ in range(DRAWS))
    assert chi_square(found, expected) < CRITICAL[19]


@pytest.mark.parametrize(("how_many", "expected"), [(0, 0), (3, 3), (5, 5), (9, 5)])
def test_recipients_are_distinct_and_no_more_than_there_are(how_many: int, expected: int) -> None:
    found = draw_recipients(COUNTS, COUNTS, how_many, 1e-6, random.Random(1))
    assert len(found) == len(set(found)) == expected


def test_nobody_to_choose_from() -> None:
    assert draw_recipients(COUNTS, [], 3, 1e-6, random.Random(1)) == []


def test_everyone_is_chosen_once_before_anyone_twice() -> None:
    counts = dict.fromkeys("abcdefgh", 0)
    for number in range(1, 9):
        for name in draw_recipients(counts, counts, 1, 1e-6, random.Random(number)):
            counts[name] += 1
    assert set(counts.values()) == {1}


def rows(sender: int, count: int = 4) -> Array:
    """Rows that tell where they come from: sender * 10 + row."""
    return np.array([[10.0 * sender + row] * 2 for row in range(count)], dtype=np.float32)


def mixed(
    senders: int, positions: int = 4, seed: int = 1, kept: bool = False, rows_each: int = 0
) -> list[tuple[int, int]]:
    """Return for each position the sender (0: the node itself) and the row that it got."""
    config = ZeroDFLConfig(positions="kept" if kept else "shuffled")
    inbox = [
        InboxMessage(f"s{at}", 1, Tensors({"context": rows(at, rows_each or positions)}))
        for at in range(1, senders + 1)
    ]
    own = Tensors({"context": rows(0, positions)})
    for change in ZeroDFL(config, frame("zerodfl")).mix(own, inbox, random.Random(seed)):
        own = change.apply(own)
    return [divmod(int(row[0]), 10) for row in own["context"]]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_every_sender_gives_one_row_before_any_gives_two(kept: bool, seed: int) -> None:
    for senders, positions in ((4, 4), (6, 4), (3, 4), (1, 4), (2, 4)):
        origins = mixed(senders, positions, seed, kept)
        times = [sum(s == sender for s, _ in origins) for sender in range(senders + 1)]
        assert times[0] == 0
        assert max(times[1:]) - min(times[1:]) <= 1
        if kept:
            assert [row for _, row in origins] == list(range(positions))


@pytest.mark.parametrize("seed", range(20))
def test_a_row_is_taken_again_only_after_all_rows_of_its_sender(seed: int) -> None:
    for senders, positions in ((1, 4), (2, 4), (3, 4), (2, 8)):
        assert len(set(mixed(senders, positions, seed))) == positions
    assert sorted(mixed(1, 4, seed, rows_each=2)) == [(1, 0), (1, 0), (1, 1), (1, 1)]


def test_shuffled_rows_take_any_place_and_any_sender() -> None:
    seen = {(at, origin) for seed in range(300) for at, origin in enumerate(mixed(2, 2, seed))}
    assert seen == {(at, (sender, row)) for at in (0, 1) for sender in (1, 2) for row in (0, 1)}


def test_the_original_is_left_as_it_is() -> None:
    own = Tensors({"context": rows(0)})
    inbox = [InboxMessage("b", 1, Tensors({"context": rows(3)}))]
    for change in ZeroDFL(ZeroDFLConfig(), frame("zerodfl")).mix(own, inbox, random.Random(1)):
        assert change.apply(own) != own
    assert own == Tensors({"context": rows(0)})


RECEIVED = Tensors({"context": [[9.0, 9.0], [8.0, 8.0]]})


def round_with(rise: float | None, losses: list[float], own: float = 1.0) -> Any:
    """Run a sync round, in which "b" sent two rows; return what was adopted and measured."""
    made = ZeroDFL.start(ZeroDFLConfig(admit_rise=rise), context(mode="sync", max=5), PROMPTS)
    made.handle(0.0, PeerUp("b"))
    (tune,) = only(made.handle(0.0, RoundDue(1)), Tune)
    made.handle(0.0, Received(message(tensors=RECEIVED)))
    metrics = {"loss": 0.5, "validation_loss": own}
    effects = made.handle(0.0, Tuned(tune.job, Report(tensors=PROMPTS, metrics=metrics, samples=8)))
    records: list[Record] = []
    measured = 0
    while only(effects, Tune):
        (tune,) = only(effects, Tune)
        assert tune.job.stage == MEASURE
        report = Report(
            tensors=tune.job.tensors, metrics={"validation_loss": losses[measured]}, samples=8
        )
        measured += 1
        effects = made.handle(0.0, Tuned(tune.job, report))
        records += only(effects, Record)
    (adopt,) = only(effects, Adopt)
    assert adopt.givers == (("b",) if (adopt.snapshot.policy.tensors != PROMPTS) else ())
    return adopt.snapshot.policy.tensors["context"], measured, records, adopt.snapshot.metrics


def test_what_makes_it_worse_stays_out_and_is_counted() -> None:
    rows, measured, records, metrics = round_with(0.1, [5.0, 1.05])
    assert measured == 2
    np.testing.assert_array_equal(rows[0], PROMPTS["context"][0])
    assert rows[1][0] in (8.0, 9.0)
    assert [one.text for one in records] == [
        "round 1: received changes that raise the validation loss are not used: 1"
    ]
    assert metrics == {"loss": 0.5, "validation_loss": 1.0}


def test_without_a_gate_nothing_is_measured() -> None:
    rows, measured, _, _ = round_with(None, [])
    assert measured == 0
    assert {float(one[0]) for one in rows} <= {8.0, 9.0}


def answered(made: Gossip, effects: Any, losses: list[float]) -> Any:
    """Answer measurements with these losses; return the other effects after them."""
    for loss in losses:
        (tune,) = only(effects, Tune)
        assert tune.job.stage == MEASURE
        report = Report(tensors=tune.job.tensors, metrics={"validation_loss": loss}, samples=8)
        effects = made.handle(0.0, Tuned(tune.job, report))
    return effects


@pytest.mark.parametrize("restarted", [False, True])
def test_in_async_rows_are_tried_before_the_tuning(restarted: bool) -> None:
    """Rows that arrive in a round are judged at the next one by the last tuning's loss."""
    config, surroundings = ZeroDFLConfig(admit_rise=0.1), context(max=5)
    made = cast("Gossip", ZeroDFL.start(config, surroundings, PROMPTS))
    made.handle(0.0, PeerUp("b"))
    (tune,) = only(made.handle(0.0, RoundDue(1)), Tune)
    made.handle(0.0, Received(message(tensors=RECEIVED)))
    report = Report(tensors=PROMPTS, metrics={"validation_loss": 1.0}, samples=8)
    (adopt,) = only(made.handle(0.0, Tuned(tune.job, report)), Adopt)
    assert adopt.snapshot.policy.tensors == PROMPTS
    made.handle(0.0, Adopted(adopt.snapshot))
    if restarted:
        made = cast("Gossip", ZeroDFL.restore(config, surroundings, adopt.snapshot.policy))
    effects = answered(made, made.handle(0.0, RoundDue(2)), [5.0, 1.05])
    (tune,) = only(effects, Tune)
    assert tune.job.stage == "prompts"
    rows = tune.job.tensors["context"]
    np.testing.assert_array_equal(rows[0], PROMPTS["context"][0])
    assert rows[1][0] in (8.0, 9.0)
    assert [one.text for one in only(effects, Record)] == [
        "round 2: received changes that raise the validation loss are not used: 1"
    ]


def test_in_async_an_unknown_loss_is_measured_first() -> None:
    """Rows that arrive before the first round pass the gate, too."""
    config = ZeroDFLConfig(admit_rise=0.1)
    made = cast("Gossip", ZeroDFL.start(config, context(max=5), PROMPTS))
    made.handle(0.0, PeerUp("b"))
    made.handle(0.0, Received(message(tensors=RECEIVED)))
    effects = made.handle(0.0, RoundDue(1))
    (first,) = only(effects, Tune)
    assert first.job.tensors == PROMPTS
    (tune,) = only(answered(made, effects, [1.0, 9.0, 9.0]), Tune)
    assert tune.job.stage == "prompts"
    assert tune.job.tensors == PROMPTS


def test_all_refused_leaves_what_was_tuned() -> None:
    rows, _, _, _ = round_with(0.0, [5.0, 5.0])
    np.testing.assert_array_equal(rows, PROMPTS["context"])


def test_the_rise_is_not_negative() -> None:
    with pytest.raises(ValueError, match=r"policy\.admit_rise is -1"):
        ZeroDFLConfig(admit_rise=-1.0)


TIMER = ev.SetTimer(RESEND, RESEND_S)


def after_tuning(mode: Barrier, recipients: int = 5) -> tuple[Gossip, list[ev.Send]]:
    """Return a node after its first tuning with peers b and c, and what it sent them."""
    rounds = RoundSettings(mode=mode, max=5)
    context = frame("zerodfl", rounds=rounds, samples=0)
    config = ZeroDFLConfig(recipients=recipients)
    policy = cast("Gossip", ZeroDFL.start(config, context, PROMPTS))
    for peer in ("b", "c"):
        policy.handle(0.0, ev.PeerUp(peer))
    (tune,) = policy.handle(0.0, ev.RoundDue(1))
    assert isinstance(tune, ev.Tune)
    effects = policy.handle(0.0, ev.Tuned(tune.job, Report(tensors=PROMPTS, metrics={}, samples=1)))
    return policy, all_sent(effects)


def all_sent(effects: Sequence[ev.Effect]) -> list[ev.Send]:
    return [one for one in effects if isinstance(one, ev.Send)]


def lost(send: ev.Send) -> ev.Undelivered:
    return ev.Undelivered(send.to, send.message, "unreachable", "nobody answers")


def test_what_was_lost_is_sent_again_until_it_arrives() -> None:
    policy, sent = after_tuning("sync")
    assert [(one.to, one.message.phase) for one in sent] == [("b", "prompts"), ("c", "prompts")]
    for _ in range(3):
        assert policy.handle(0.0, lost(sent[0])) == [TIMER]
        assert policy.handle(0.0, ev.TimerFired(RESEND)) == [sent[0]]
    assert policy.handle(0.0, ev.TimerFired(RESEND)) == []


def test_a_marker_that_was_lost_is_sent_again() -> None:
    policy, sent = after_tuning("sync", recipients=1)
    (marker,) = (one for one in sent if one.message.phase == "done")
    assert policy.handle(0.0, lost(marker)) == [TIMER]
    assert policy.handle(0.0, ev.TimerFired(RESEND)) == [marker]


def test_rows_that_went_to_another_leave_a_marker_to_send() -> None:
    policy, sent = after_tuning("sync", recipients=1)
    (rows,) = (one for one in sent if one.message.phase == "prompts")
    redrawn, timer = policy.handle(0.0, lost(rows))
    assert isinstance(redrawn, ev.Send)
    assert redrawn.to != rows.to
    assert timer == TIMER
    (again,) = all_sent(policy.handle(0.0, ev.TimerFired(RESEND)))
    assert (again.to, again.message.phase) == (rows.to, "done")


def test_the_dead_are_owed_nothing() -> None:
    policy, sent = after_tuning("sync")
    policy.handle(0.0, lost(sent[0]))
    policy.handle(0.0, ev.PeerDown(sent[0].to))
    assert policy.handle(0.0, ev.TimerFired(RESEND)) == []
    assert policy.handle(0.0, lost(sent[0])) == []


@pytest.mark.parametrize("number", [0, 2])
def test_a_message_of_another_round_is_left_alone(number: int) -> None:
    policy, sent = after_tuning("sync")
    message = sent[0].message
    other = replace(message, sender="a", round=number, phase="prompts", tensors=PROMPTS)
    assert policy.handle(0.0, ev.Undelivered("b", other, "unreachable", "")) == []


def test_async_waits_for_nobody_and_owes_nothing() -> None:
    policy, sent = after_tuning("async")
    assert not [one for one in policy.handle(0.0, lost(sent[0])) if isinstance(one, ev.SetTimer)]


GIB = 2**30


def test_the_papers_figures_come_back() -> None:
    """46.48 and ~4 "GB", 807 "MB": GiB and MiB of 14 bytes a number."""
    shapes = {"context": (4, 512)}
    counted = {
        k: ZeroDFL.paper_bytes(ZeroDFLConfig(recipients=k), shapes, 500, 59) for k in (59, 5, 1)
    }
    assert counted[59] / GIB == pytest.approx(46.476, abs=0.001)
    assert counted[5] / GIB == pytest.approx(3.939, abs=0.001)
    assert counted[1] / 2**20 == pytest.approx(806.6, abs=0.1)
    half = ZeroDFLConfig(recipients=5, rows_shared=2)
    assert ZeroDFL.paper_bytes(half, shapes, 500, 59) == counted[5] / 2
