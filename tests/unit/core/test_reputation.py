"""Faults fade or add up to quarantine, which ends; who is behind."""

from __future__ import annotations

from dataclasses import replace

from fednode.core.events import (
    Answer,
    Effect,
    Misbehaved,
    Received,
    SetTimer,
    Started,
    TimerFired,
    TurnAway,
)
from fednode.core.kernel import RELEASE, Kernel
from fednode.core.reputation import SHOWN_MAX, Reputation, Tally, Tolerance
from fednode.core.settings import StartSettings
from fednode.core.types import Tensors
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from tests.unit.core.scenes import FACTS, PROMPTS, local, message, only, recorded, zerodfl

LIMITS = Tolerance(budget=3, forgiven_s=50.0, quarantine_s=60.0)


def test_faults_are_forgiven_with_time_and_quarantine_doubles() -> None:
    reputation = Reputation(LIMITS)
    assert [reputation.fault("b", at) for at in (0.0, 0.0, 50.0, 51.0)] == [0.0, 0.0, 0.0, 60.0]
    assert [reputation.fault("b", 51.0) for _ in range(3)] == [0.0, 0.0, 120.0]
    for expected in (240.0, 480.0):
        assert [reputation.fault("b", 9e9) for _ in range(3)] == [0.0, 0.0, expected]
    assert reputation.fault("c", 200.0) == 0.0


def test_slow_faults_never_add_up() -> None:
    reputation = Reputation(LIMITS)
    assert all(reputation.fault("b", 50.0 * at) == 0.0 for at in range(1000))


def hostile(kernel: Kernel, times: int = 3) -> list[Effect]:
    bad = message(tensors=Tensors({"weights": [1.0]}))
    found: list[Effect] = []
    for at in range(times):
        found += kernel.step(1.0, Received(bad, at))
    return found


def made() -> Kernel:
    policy = zerodfl(start=StartSettings(peers=0))
    kernel = Kernel(policy.context, policy, FACTS, tolerance=LIMITS, anew=local)
    kernel.step(0.0, Started())
    return kernel


def test_a_peer_that_keeps_sending_what_is_wrong_is_quarantined_and_named() -> None:
    kernel = made()
    kernel.step(0.5, Received(message(), 1))
    effects = hostile(kernel)
    assert "peer.quarantined" in recorded(effects)
    assert SetTimer(RELEASE + "b", 60.0) in effects
    assert TurnAway("b", 60.0) in effects
    (b, _) = kernel.view().peers
    assert b.state == "quarantined"
    assert b.reason.startswith("quarantined for 60 s: at last, phase 'prompts' carries")
    # Nothing of it is taken, not even what is right, and it does not count as there.
    (answer,) = only(kernel.step(2.0, Received(message(round=2), 9)), Answer)
    assert (answer.code, answer.detail) == ("refused", b.reason)
    assert kernel.view().refused == {"schema": 3, "quarantined": 1}
    assert kernel.view().alone


def test_quarantine_ends_and_the_peer_begins_anew() -> None:
    kernel = made()
    hostile(kernel)
    kernel.step(61.0, TimerFired(RELEASE + "b"))
    assert kernel.view().peers[0].state == "unknown"
    (answer,) = only(kernel.step(62.0, Received(message(), 9)), Answer)
    assert answer.code == "ok"
    assert kernel.view().peers[0].state == "alive"


def test_what_the_host_saw_counts_too_and_strangers_cost_nothing() -> None:
    kernel = made()
    for _ in range(3):
        kernel.step(1.0, Misbehaved("b", "bad frames"))
        assert kernel.step(1.0, Misbehaved("zoe", "bad frames")) == []
    assert kernel.view().peers[0].state == "quarantined"


def test_repeated_late_and_other_configurations_cost_nothing() -> None:
    kernel = made()
    for at in range(20):
        kernel.step(1.0, Received(message(round=5), at))
        kernel.step(1.0, Received(message(round=1), at))
        kernel.step(1.0, Received(message(sender="c", fingerprint="ff"), at))
    assert {peer.state for peer in kernel.view().peers} == {"alive", "refused"}


def test_a_round_is_told_who_has_it_still_before_it() -> None:
    policy = zerodfl(start=StartSettings(peers=2), mode="sync", max=5)
    kernel = Kernel(policy.context, policy, FACTS, anew=local)
    kernel.step(0.0, Started())
    kernel.step(0.1, Received(message("hello", "b", round=5), 1))
    kernel.step(0.2, Received(message("hello", "c", round=0), 2))
    assert policy._stragglers.behind == {"c"}
    assert kernel._behind(6) == {"c"}, "b has run all its rounds: it has none still before it"


def test_in_a_mesh_of_two_nobody_is_waited_for_again_and_again() -> None:
    frame = replace(zerodfl().context, peers=("b",))
    kernel = Kernel(frame, ZeroDFL.start(ZeroDFLConfig(), frame, PROMPTS), FACTS, anew=local)
    kernel.step(0.0, Started())
    kernel.step(0.1, Received(message("hello", "b", round=0), 1))
    assert kernel._behind(3) == frozenset()


def test_many_senders_of_one_kind_silence_no_other_kind() -> None:
    tally = Tally()
    told = sum(tally.first("certificate", f"192.0.2.{number}") for number in range(SHOWN_MAX + 9))
    assert told == SHOWN_MAX
    assert tally.first("identity", "b")
    assert not tally.first("identity", "b")
    assert tally.counts == {"certificate": SHOWN_MAX + 9, "identity": 2}
