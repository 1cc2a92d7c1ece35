"""ZeroDFL as the paper has it: recipients, counts, the mix, the gate, what is sent again, bytes.

Node "a" runs by events among peers: what it tuned is OWN, and rows tell whose they are.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

import pytest

from fednode import registry
from fednode.core import events as ev
from fednode.core.events import Adopt, Adopted, PeerDown, PeerUp, Received, RoundDue, Send, Tuned
from fednode.core.policy import RESEND, RESEND_S
from fednode.core.rounds.gossip import Gossip, InboxMessage
from fednode.core.settings import Barrier, RoundSettings
from fednode.core.types import EMPTY, MEASURE, Message, Report, Snapshot, Tensors
from fednode.learn.coop import CoOp
from fednode.learn.settings import TuningSettings
from fednode.policies.local import Local, LocalConfig, OwnGaussian
from fednode.policies.local import head as Objective
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig, draw_recipients
from fednode.testing import frame
from tests.unit.core.scenes import only

CARRY = Tensors({"momentum": [1.0]})
PEERS = ("b", "c", "d", "e")


def rows(peer: str, count: int = 4) -> Tensors:
    """Return rows that tell whose they are and which: 100 * place in the alphabet + row."""
    base = 100.0 * (ord(peer) - ord("a"))
    return Tensors({"context": [[base + row, base + row] for row in range(count)]})


OWN = rows("a")


def origin(tensors: Tensors) -> list[str]:
    """Return for each row of prompts whose it was, and which: "a1", "c3"."""
    first = tensors["context"][:, 0]
    return [f"{chr(ord('a') + int(x // 100))}{int(x % 100)}" for x in first]


def node(
    peers: Sequence[str] = PEERS, mode: Barrier = "async", most: int = 9, **set_: Any
) -> Gossip:
    """Return node "a" at round 0; all its peers answer."""
    context = frame(
        "zerodfl", peers=tuple(peers), rounds=RoundSettings(mode=mode, max=most), samples=0
    )
    policy = cast("Gossip", ZeroDFL.start(ZeroDFLConfig(**set_), context, OWN))
    for peer in peers:
        policy.handle(0.0, PeerUp(peer))
    return policy


def report(tensors: Tensors = OWN, **metrics: float) -> Report:
    return Report(tensors=tensors, metrics=metrics, samples=8, carry=CARRY)


def tuned(policy: Gossip, number: int = 1, start: list[str] | None = None) -> list[ev.Effect]:
    """Let a round begin and its tuning end; return what follows. start: gets its start's rows."""
    (tune,) = only(policy.handle(0.0, RoundDue(number)), ev.Tune)
    if start is not None:
        start += origin(tune.job.tensors)
    return list(policy.handle(0.0, Tuned(tune.job, report(loss=1.0))))


def said(peer: str, phase: str = "prompts", number: int = 1, **changed: Any) -> Received:
    tensors = rows(peer) if phase == "prompts" else Tensors()
    made = Message(
        mesh="m",
        fingerprint="f",
        policy="zerodfl",
        sender=peer,
        round=number,
        phase=phase,
        tensors=tensors,
    )
    return Received(replace(made, **changed))


def adopted(policy: Gossip, effects: Sequence[ev.Effect]) -> Snapshot:
    """Return what a round adopts, and tell the policy that it is durable."""
    (adopt,) = only(effects, Adopt)
    policy.handle(0.0, Adopted(adopt.snapshot))
    return adopt.snapshot


def begun(policy: Gossip, number: int = 1) -> list[str]:
    """Let a round begin; return whose its rows are, end it, and tell that it is durable."""
    start: list[str] = []
    adopted(policy, tuned(policy, number, start))
    return start


# A round ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peers", "set_", "told"),
    [
        (PEERS, {"recipients": 3}, 3),
        (PEERS[:2], {"recipients": 4}, 2),
        (PEERS, {"rows_shared": 0}, 0),
        ((), {}, 0),
    ],
)
def test_a_round_tells_live_peers_and_adopts_what_it_tuned(
    peers: Sequence[str], set_: dict[str, Any], told: int
) -> None:
    policy = node((*peers, "z"), **set_)
    policy.handle(0.0, PeerDown("z"))
    effects = tuned(policy)
    sent = only(effects, Send)
    assert {send.message.phase for send in sent} == ({"prompts"} if told else set())
    assert len({send.to for send in sent} & {*peers}) == len(sent) == told
    assert adopted(policy, effects).policy.tensors == OWN


def test_counts_rise_with_each_draw_and_steer_the_next_one() -> None:
    policy = node(recipients=1, most=100)
    for number in range(1, 5):
        adopted(policy, tuned(policy, number))
    # Epsilon is tiny, so everyone is drawn once before anyone is drawn twice.
    assert policy.state().data["chosen"] == dict.fromkeys(PEERS, 1)
    policy.handle(0.0, PeerUp("z"))
    assert policy.state().data["chosen"] == dict.fromkeys((*PEERS, "z"), 1), "as the lowest count"


@pytest.mark.parametrize("code", ["unreachable", "busy", "refused"])
def test_another_peer_is_told_in_place_of_one_that_failed_and_both_count(code: str) -> None:
    policy = node(recipients=1)
    (send,) = only(tuned(policy), Send)
    (other,) = only(policy.handle(0.0, ev.Undelivered(send.to, send.message, code, "")), Send)
    assert (other.message.phase, other.to != send.to) == ("prompts", True)
    assert policy.state().data["chosen"] == {**dict.fromkeys(PEERS, 0), send.to: 1, other.to: 1}
    policy = node(recipients=4)
    for send in only(tuned(policy), Send):  # all were tried, so the message is let go
        assert policy.handle(0.0, ev.Undelivered(send.to, send.message, code, "")) == []


def test_rows_that_come_while_a_round_is_stored_are_in_the_next_alone() -> None:
    policy = node()
    effects = tuned(policy)
    for peer in PEERS:
        policy.handle(0.0, said(peer))
    assert adopted(policy, effects).policy.tensors == OWN
    start: list[str] = []
    effects = tuned(policy, 2, start)
    assert sorted(one[0] for one in start) == list(PEERS), "one row of each sender"
    assert only(effects, Adopt)[0].givers == PEERS
    adopted(policy, effects)
    policy.handle(0.0, said("b"))  # the same message once more
    effects = tuned(policy, 3, start)
    assert start[4:] == origin(OWN)
    assert only(effects, Adopt)[0].givers == ()


def test_partial_sharing_sends_and_replaces_the_first_rows_only() -> None:
    policy = node(rows_shared=3)
    policy.handle(0.0, said("b", tensors=rows("b", 3)))
    sent = only(tuned(policy), Send)
    assert all(send.message.tensors == rows("a", 3) for send in sent)
    policy = node(rows_shared=3)
    policy.handle(0.0, said("b", tensors=rows("b", 3)))
    assert [one[0] for one in begun(policy)] == ["b", "b", "b", "a"]


@pytest.mark.parametrize(("optimizer", "carry"), [("keep", CARRY), ("reset", EMPTY)])
def test_momentum_after_a_merge_is_kept_or_reset(optimizer: str, carry: object) -> None:
    policy = node(optimizer=optimizer)
    assert adopted(policy, tuned(policy)).policy.carry == CARRY, "nothing was merged"
    policy.handle(0.0, said("b"))
    (tune,) = only(policy.handle(0.0, RoundDue(2)), ev.Tune)
    assert tune.job.carry == carry
    policy.handle(0.0, ev.TuneFailed(tune.job, "no memory"))
    assert policy.handle(0.0, RoundDue(2)) == [tune], "it begins again from the same rows"
    policy = node(peers=("b",), mode="sync", optimizer=optimizer)
    tuned(policy)
    assert adopted(policy, policy.handle(0.0, said("b"))).policy.carry == carry


def test_the_last_round_adopts_what_was_tuned_unmerged() -> None:
    policy = node(most=1)
    policy.handle(0.0, said("b"))
    snapshot = adopted(policy, tuned(policy))
    assert snapshot.policy.tensors == snapshot.policy.tuned == OWN


# Barriers -----------------------------------------------------------------------------------------


def test_sync_waits_for_every_live_peer_and_says_done_to_those_not_chosen() -> None:
    policy = node(mode="sync", recipients=1)
    phases = Counter(send.message.phase for send in only(tuned(policy), Send))
    assert phases == {"prompts": 1, "done": 3}
    for peer in ("b", "c", "d"):
        assert policy.handle(0.0, said(peer, "done")) == []
    adopted(policy, policy.handle(0.0, said("e")))
    assert policy.activity == "idle"
    policy.handle(0.0, PeerDown("b"))
    (send,) = only(policy.handle(0.0, PeerUp("b")), Send)
    assert (send.to, send.message.phase, send.message.round) == ("b", "done", 1), "it may wait"


def test_rows_of_the_next_round_are_kept_for_it() -> None:
    policy = node(peers=("b",), mode="sync")
    (tune,) = only(policy.handle(0.0, RoundDue(1)), ev.Tune)
    policy.handle(0.0, said("b", number=1))
    policy.handle(0.0, said("b", number=2, tensors=rows("c")))
    effects = policy.handle(0.0, Tuned(tune.job, report()))
    for number, sender in ((2, "b"), (3, "c")):
        assert {one[0] for one in origin(adopted(policy, effects).policy.tensors)} == {sender}
        effects = tuned(policy, number)


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


# Equations 1 and 2, and the mix -------------------------------------------------------------------

COUNTS = {"a": 0, "b": 1, "c": 2, "d": 5, "e": 10}
CRITICAL = 43.820
"""The 99.9 % point of the chi-square distribution with 19 degrees of freedom."""


def chi_square(drawn: Mapping[Any, int], counts: Mapping[str, int]) -> float:
    """Compare draws of two with equations 1 and 2, renormalised after the first, in fractions."""
    weights = {name: 1 / (Fraction(count) + 1) for name, count in counts.items()}
    p = {name: weight / sum(weights.values()) for name, weight in weights.items()}
    total, found = sum(drawn.values()), 0.0
    for one, two in itertools.permutations(counts, 2):
        wanted = float(p[one] * p[two] / (1 - p[one]) * total)
        found += (drawn.get((one, two), 0) - wanted) ** 2 / wanted
    return found


def test_recipients_follow_equation_2_and_the_chi_square_test_can_fail() -> None:
    draw = random.Random(3)
    found = Counter(tuple(draw_recipients(COUNTS, COUNTS, 2, 1.0, draw)) for _ in range(40_000))
    assert chi_square(found, COUNTS) < CRITICAL
    assert chi_square(found, dict.fromkeys(COUNTS, 1)) > CRITICAL


@pytest.mark.parametrize(("how_many", "expected"), [(0, 0), (3, 3), (5, 5), (9, 5)])
def test_recipients_are_distinct_and_no_more_than_there_are(how_many: int, expected: int) -> None:
    found = draw_recipients(COUNTS, COUNTS, how_many, 1e-6, random.Random(1))
    assert len(found) == len(set(found)) == expected
    assert draw_recipients(COUNTS, [], how_many, 1e-6, random.Random(1)) == []


def mixed(
    senders: int, positions: int = 4, seed: int = 1, kept: bool = False, rows_each: int = 0
) -> list[str]:
    """Return for each position the sender ("a": the node itself) and the row that it got."""
    method = ZeroDFL(ZeroDFLConfig(positions="kept" if kept else "shuffled"), frame("zerodfl"))
    inbox = [
        InboxMessage(name, 1, rows(name, rows_each or positions)) for name in "bcdefg"[:senders]
    ]
    own = rows("a", positions)
    for change in method.mix(own, inbox, random.Random(seed)):
        own = change.apply(own)
    return origin(own)


@pytest.mark.parametrize("kept", [True, False])
def test_every_sender_gives_one_row_before_any_gives_two(kept: bool) -> None:
    for senders, seed in itertools.product((1, 2, 3, 4, 6), range(5)):
        found = mixed(senders, seed=seed, kept=kept)
        times = [sum(one[0] == sender for one in found) for sender in "abcdefg"[: senders + 1]]
        assert times[0] == 0
        assert max(times[1:]) - min(times[1:]) <= 1
        if kept:
            assert [one[1] for one in found] == ["0", "1", "2", "3"]


def test_a_row_is_taken_again_only_after_all_rows_of_its_sender() -> None:
    for seed in range(20):
        for senders, positions in ((1, 4), (2, 4), (3, 4), (2, 8)):
            assert len(set(mixed(senders, positions, seed))) == positions
        assert sorted(mixed(1, 4, seed, rows_each=2)) == ["b0", "b0", "b1", "b1"]


def test_shuffled_rows_take_any_place_and_any_sender() -> None:
    seen = {(at, one) for seed in range(300) for at, one in enumerate(mixed(2, 2, seed))}
    assert seen == {*itertools.product((0, 1), ("b0", "b1", "c0", "c1"))}


# The gate -----------------------------------------------------------------------------------------

RECEIVED = rows("b", 2)
REFUSED = "round {}: received changes that raise the validation loss are not used: 1"


def cautious(mode: Barrier, rise: float | None = 0.1) -> Gossip:
    """Return a node that shares two rows with its peer "b", and tries what it receives."""
    return node(("b",), mode, 5, admit_rise=rise, rows_shared=2)


def answered(policy: Gossip, effects: Any, losses: list[float]) -> Any:
    """Answer measurements with these losses; return the other effects after them."""
    records: list[ev.Record] = []
    for loss in losses:
        (tune,) = only(effects, ev.Tune)
        assert tune.job.stage == MEASURE
        measured = report(tune.job.tensors, validation_loss=loss)
        effects = policy.handle(0.0, Tuned(tune.job, measured))
        records += only(effects, ev.Record)
    return [*only(effects, ev.Tune), *only(effects, Adopt), *records]


@pytest.mark.parametrize(
    ("rise", "losses", "taken"),
    [(0.1, [5.0, 1.05], "ab"), (0.0, [5.0, 5.0], "aa"), (None, [], "bb")],
)
def test_what_makes_it_worse_stays_out_and_is_counted(
    rise: float | None, losses: list[float], taken: str
) -> None:
    policy = cautious("sync", rise)
    (tune,) = only(policy.handle(0.0, RoundDue(1)), ev.Tune)
    policy.handle(0.0, said("b", tensors=RECEIVED))
    metrics = {"loss": 0.5, "validation_loss": 1.0}
    effects = policy.handle(0.0, Tuned(tune.job, report(OWN, **metrics)))
    adopt, *records = answered(policy, effects, losses)
    found = origin(adopt.snapshot.policy.tensors)
    assert ("".join(one[0] for one in found[:2]), found[2:]) == (taken, ["a2", "a3"])
    assert adopt.givers == (("b",) if "b" in taken else ())
    assert len(records) == bool(losses)
    assert taken == "aa" or [one.text for one in records] == [REFUSED.format(1)] * len(records)
    assert adopt.snapshot.metrics == metrics


@pytest.mark.parametrize("restarted", [False, True])
def test_in_async_rows_are_tried_before_the_tuning(restarted: bool) -> None:
    """Rows that arrive in a round are judged at the next one by the last tuning's loss."""
    policy = cautious("async")
    (tune,) = only(policy.handle(0.0, RoundDue(1)), ev.Tune)
    policy.handle(0.0, said("b", tensors=RECEIVED))
    effects = policy.handle(0.0, Tuned(tune.job, report(validation_loss=1.0)))
    snapshot = adopted(policy, effects)
    assert snapshot.policy.tensors == OWN
    if restarted:
        config = ZeroDFLConfig(admit_rise=0.1, rows_shared=2)
        policy = cast("Gossip", ZeroDFL.restore(config, policy.context, snapshot.policy))
    tune, record = answered(policy, policy.handle(0.0, RoundDue(2)), [5.0, 1.05])
    assert tune.job.stage == "prompts"
    assert [one[0] for one in origin(tune.job.tensors)] == ["a", "b", "a", "a"]
    assert record.text == REFUSED.format(2)


def test_in_async_an_unknown_loss_is_measured_first() -> None:
    """Rows that arrive before the first round pass the gate, too."""
    policy = cautious("async")
    policy.handle(0.0, said("b", tensors=RECEIVED))
    effects = policy.handle(0.0, RoundDue(1))
    assert only(effects, ev.Tune)[0].job.tensors == OWN
    tune, _ = answered(policy, effects, [1.0, 9.0, 9.0])
    assert (tune.job.stage, tune.job.tensors) == ("prompts", OWN)


# What was lost ------------------------------------------------------------------------------------

TIMER = ev.SetTimer(RESEND, RESEND_S)


def after_tuning(mode: Barrier = "sync", recipients: int = 5) -> tuple[Gossip, list[Send]]:
    """Return a node after its first tuning with peers b and c, and what it sent them."""
    policy = node(("b", "c"), mode, recipients=recipients)
    return policy, only(tuned(policy), Send)


def lost(send: Send, **changed: Any) -> ev.Undelivered:
    return ev.Undelivered(send.to, replace(send.message, **changed), "unreachable", "nobody")


@pytest.mark.parametrize(("recipients", "phase"), [(5, "prompts"), (1, "done")])
def test_rows_and_markers_that_were_lost_are_sent_again_until_they_arrive(
    recipients: int, phase: str
) -> None:
    policy, sent = after_tuning(recipients=recipients)
    assert sorted(one.to for one in sent) == ["b", "c"]
    again = next(one for one in sent if one.message.phase == phase)
    for _ in range(3):
        assert policy.handle(0.0, lost(again)) == [TIMER]
        assert policy.handle(0.0, ev.TimerFired(RESEND)) == [again]
    assert policy.handle(0.0, ev.TimerFired(RESEND)) == []
    for number in (0, 2):
        assert policy.handle(0.0, lost(again, round=number)) == [], "of another round"
    policy.handle(0.0, lost(again))
    policy.handle(0.0, PeerDown(again.to))  # the dead are owed nothing
    assert policy.handle(0.0, ev.TimerFired(RESEND)) == []
    assert policy.handle(0.0, lost(again, phase="done")) == []


def test_rows_that_went_to_another_leave_a_marker_to_send() -> None:
    policy, sent = after_tuning(recipients=1)
    (first,) = (one for one in sent if one.message.phase == "prompts")
    redrawn, timer = policy.handle(0.0, lost(first))
    assert isinstance(redrawn, Send)
    assert (redrawn.to != first.to, timer) == (True, TIMER)
    (again,) = only(policy.handle(0.0, ev.TimerFired(RESEND)), Send)
    assert (again.to, again.message.phase) == (first.to, "done")


def test_async_waits_for_nobody_and_owes_nothing() -> None:
    policy, sent = after_tuning("async")
    assert not only(policy.handle(0.0, lost(sent[0])), ev.SetTimer)


def test_the_papers_figures_come_back() -> None:
    """46.48 and ~4 "GB", 807 "MB": GiB and MiB of 14 bytes a number."""
    shapes, gib = {"context": (4, 512)}, 2**30
    counted = {
        k: ZeroDFL.paper_bytes(ZeroDFLConfig(recipients=k), shapes, 500, 59) for k in (59, 5, 1)
    }
    assert counted[59] / gib == pytest.approx(46.476, abs=0.001)
    assert counted[5] / gib == pytest.approx(3.939, abs=0.001)
    assert counted[1] / 2**20 == pytest.approx(806.6, abs=0.1)
    half = ZeroDFLConfig(recipients=5, rows_shared=2)
    assert ZeroDFL.paper_bytes(half, shapes, 500, 59) == counted[5] / 2


# The control: policy local ------------------------------------------------------------------------


def test_the_control_s_first_job_is_zerodfl_s_and_it_takes_no_notice_of_peers() -> None:
    """The same start, seed and schedule: only the exchange can make a difference."""
    context = frame("local", peers=("b",), rounds=RoundSettings(mode="async", max=3))
    policy = Local.start(LocalConfig(), context, OWN)
    message = said("b", policy="local").message
    assert "exchanges nothing" in policy.fault(message)
    before = policy.state()
    assert policy.handle(0.0, PeerUp("b")) == policy.handle(0.0, Received(message)) == []
    assert policy.state() == before
    zerodfl = ZeroDFL.start(ZeroDFLConfig(), context, OWN)
    assert policy.handle(0.0, RoundDue(1)) == zerodfl.handle(0.0, RoundDue(1)) != []


def test_a_setting_chooses_what_the_control_classifies_with(model: Any) -> None:
    assert registry.prompt_module("local") is Objective
    for config in (None, LocalConfig(), LocalConfig("prompt")):
        assert type(Objective(model, TuningSettings(), config)) is CoOp
    assert type(Objective(model, TuningSettings(), LocalConfig("gda"))) is OwnGaussian
