"""ZeroDFL as the paper has it: recipients, counts, the mix, the gate, what is sent again, bytes."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping
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
from fednode.core.settings import Barrier
from fednode.core.types import EMPTY, MEASURE, Array, Report, Tensors
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig, draw_recipients
from fednode.testing import frame
from tests.unit.core.scenes import only
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
    assert adopted(policy, tuned(policy)).policy.carry == CARRY, "nothing was merged"
    policy.handle(0.0, said("b"))
    (tune,) = policy.handle(0.0, RoundDue(2))
    assert isinstance(tune, Tune)
    assert tune.job.carry == carry
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
    assert policy.activity == "idle"


def test_sync_goes_on_when_the_last_missing_peer_dies() -> None:
    policy = node(peers=("b", "c"), mode="sync")
    tuned(policy)
    policy.handle(0.0, said("b"))
    assert policy.activity == "exchanging"
    adopted(policy, policy.handle(0.0, PeerDown("c")))
    assert policy.activity == "idle"


def test_rows_of_the_next_round_are_kept_for_it() -> None:
    policy = node(peers=("b",), mode="sync")
    (tune,) = policy.handle(0.0, RoundDue(1))
    assert isinstance(tune, Tune)
    policy.handle(0.0, said("b", number=1))
    policy.handle(0.0, said("b", number=2, tensors=said("c").message.tensors))
    effects = policy.handle(0.0, Tuned(tune.job, Report(tensors=OWN, metrics={}, samples=8)))
    assert {one[0] for one in origin(adopted(policy, effects))} == {"b"}
    assert {one[0] for one in origin(adopted(policy, tuned(policy, 2)))} == {"c"}


@pytest.mark.parametrize(
    ("phase", "number", "most", "reached"),
    [
        ("prompts", 7, 20, 6),  # it goes on where the other proves to be
        ("done", 7, 20, 1),  # a word moves nobody
        ("done", 7, 0, 1),
        ("prompts", 10**9, 20, 19),  # nor does anything beyond the round before the last
    ],
)
def test_how_far_the_other_moves_a_node(phase: str, number: int, most: int, reached: int) -> None:
    policy = node(peers=("b",), mode="sync", most=most)
    tuned(policy)
    heard = policy.handle(0.0, said("b", phase, number=number))
    assert adopted(policy, heard).policy.round == reached


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
DRAWS = 40_000
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


def draws(count: int, uniform: bool = False) -> Counter[str]:
    """First recipients of so many rounds, each with the generator that a node makes for it."""
    context = frame("zerodfl", name="me", peers=tuple(COUNTS), seed=7)
    counts = dict.fromkeys(COUNTS, 1) if uniform else COUNTS
    found: Counter[str] = Counter()
    for number in range(count):
        generator = context.random(number, "recipients")
        found.update(draw_recipients(counts, COUNTS, 1, 1.0, generator))
    return found


def test_first_recipients_follow_equation_2_and_the_chi_square_test_can_fail() -> None:
    assert chi_square(draws(30_000), exact(COUNTS, Fraction(1))) < CRITICAL[4]
    assert chi_square(draws(3_000, uniform=True), exact(COUNTS, Fraction(1))) > CRITICAL[4]


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
    assert draw_recipients(COUNTS, [], how_many, 1e-6, random.Random(1)) == []


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


RECEIVED = Tensors({"context": [[9.0, 9.0], [8.0, 8.0]]})
REFUSED = "round {}: received changes that raise the validation loss are not used: 1"


def cautious(mode: Barrier, rise: float | None = 0.1) -> Gossip:
    """Return a node that shares two rows with its peer "b", and tries what it receives."""
    return node(("b",), mode, 5, admit_rise=rise, rows_shared=2)


def answered(policy: Gossip, effects: Any, losses: list[float]) -> Any:
    """Answer measurements with these losses; return the other effects after them."""
    records: list[Record] = []
    for loss in losses:
        (tune,) = only(effects, Tune)
        assert tune.job.stage == MEASURE
        report = Report(tensors=tune.job.tensors, metrics={"validation_loss": loss}, samples=8)
        effects = policy.handle(0.0, Tuned(tune.job, report))
        records += only(effects, Record)
    return [*only(effects, Tune), *only(effects, Adopt), *records]


@pytest.mark.parametrize(
    ("rise", "losses", "mixed"), [(0.1, [5.0, 1.05], 1), (0.0, [5.0, 5.0], 0), (None, [], 2)]
)
def test_what_makes_it_worse_stays_out_and_is_counted(
    rise: float | None, losses: list[float], mixed: int
) -> None:
    policy = cautious("sync", rise)
    (tune,) = only(policy.handle(0.0, RoundDue(1)), Tune)
    policy.handle(0.0, said("b", tensors=RECEIVED))
    metrics = {"loss": 0.5, "validation_loss": 1.0}
    effects = policy.handle(0.0, Tuned(tune.job, Report(tensors=OWN, metrics=metrics, samples=8)))
    adopt, *records = answered(policy, effects, losses)
    rows = adopt.snapshot.policy.tensors["context"]
    assert [bool(one[0] in (8.0, 9.0)) for one in rows[:2]] == [mixed == 2, mixed > 0]
    assert np.array_equal(rows[2:], OWN["context"][2:])
    assert adopt.givers == (("b",) if mixed else ())
    assert len(records) == bool(losses)
    assert not mixed or [one.text for one in records] == [REFUSED.format(1)] * len(records)
    assert adopt.snapshot.metrics == metrics


@pytest.mark.parametrize("restarted", [False, True])
def test_in_async_rows_are_tried_before_the_tuning(restarted: bool) -> None:
    """Rows that arrive in a round are judged at the next one by the last tuning's loss."""
    policy = cautious("async")
    (tune,) = only(policy.handle(0.0, RoundDue(1)), Tune)
    policy.handle(0.0, said("b", tensors=RECEIVED))
    report = Report(tensors=OWN, metrics={"validation_loss": 1.0}, samples=8)
    snapshot = adopted(policy, policy.handle(0.0, Tuned(tune.job, report)))
    assert snapshot.policy.tensors == OWN
    if restarted:
        config = ZeroDFLConfig(admit_rise=0.1, rows_shared=2)
        policy = cast("Gossip", ZeroDFL.restore(config, policy.context, snapshot.policy))
    tune, record = answered(policy, policy.handle(0.0, RoundDue(2)), [5.0, 1.05])
    assert tune.job.stage == "prompts"
    first, second = tune.job.tensors["context"][:2]
    assert first.tolist() == OWN["context"][0].tolist()
    assert second[0] in (8.0, 9.0)
    assert record.text == REFUSED.format(2)


def test_in_async_an_unknown_loss_is_measured_first() -> None:
    """Rows that arrive before the first round pass the gate, too."""
    policy = cautious("async")
    policy.handle(0.0, said("b", tensors=RECEIVED))
    effects = policy.handle(0.0, RoundDue(1))
    assert only(effects, Tune)[0].job.tensors == OWN
    tune, _ = answered(policy, effects, [1.0, 9.0, 9.0])
    assert (tune.job.stage, tune.job.tensors) == ("prompts", OWN)


# What was lost ------------------------------------------------------------------------------------

TIMER = ev.SetTimer(RESEND, RESEND_S)


def after_tuning(mode: Barrier, recipients: int = 5) -> tuple[Gossip, list[Send]]:
    """Return a node after its first tuning with peers b and c, and what it sent them."""
    policy = node(("b", "c"), mode, recipients=recipients)
    return policy, only(tuned(policy), Send)


def lost(send: Send) -> Undelivered:
    return Undelivered(send.to, send.message, "unreachable", "nobody answers")


@pytest.mark.parametrize(("recipients", "phase"), [(5, "prompts"), (1, "done")])
def test_rows_and_markers_that_were_lost_are_sent_again_until_they_arrive(
    recipients: int, phase: str
) -> None:
    policy, sent = after_tuning("sync", recipients)
    assert sorted(one.to for one in sent) == ["b", "c"]
    again = next(one for one in sent if one.message.phase == phase)
    for _ in range(3):
        assert policy.handle(0.0, lost(again)) == [TIMER]
        assert policy.handle(0.0, ev.TimerFired(RESEND)) == [again]
    assert policy.handle(0.0, ev.TimerFired(RESEND)) == []


def test_rows_that_went_to_another_leave_a_marker_to_send() -> None:
    policy, sent = after_tuning("sync", recipients=1)
    (rows,) = (one for one in sent if one.message.phase == "prompts")
    redrawn, timer = policy.handle(0.0, lost(rows))
    assert isinstance(redrawn, Send)
    assert redrawn.to != rows.to
    assert timer == TIMER
    (again,) = only(policy.handle(0.0, ev.TimerFired(RESEND)), Send)
    assert (again.to, again.message.phase) == (rows.to, "done")


def test_the_dead_are_owed_nothing() -> None:
    policy, sent = after_tuning("sync")
    policy.handle(0.0, lost(sent[0]))
    policy.handle(0.0, PeerDown(sent[0].to))
    assert policy.handle(0.0, ev.TimerFired(RESEND)) == []
    assert policy.handle(0.0, lost(sent[0])) == []


@pytest.mark.parametrize("number", [0, 2])
def test_a_message_of_another_round_is_left_alone(number: int) -> None:
    policy, sent = after_tuning("sync")
    other = replace(sent[0].message, sender="a", round=number, phase="prompts", tensors=OWN)
    assert policy.handle(0.0, Undelivered("b", other, "unreachable", "")) == []


def test_async_waits_for_nobody_and_owes_nothing() -> None:
    policy, sent = after_tuning("async")
    assert not only(policy.handle(0.0, lost(sent[0])), ev.SetTimer)


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
