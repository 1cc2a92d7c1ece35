"""Where nodes wait for each other, a message that got lost does not cost the whole deadline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fednode.core import events as ev
from fednode.core.policy import RESEND, RESEND_S
from fednode.core.rounds.gossip import Gossip
from fednode.core.settings import Barrier, RoundSettings
from fednode.core.types import Report, Tensors
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from fednode.testing import frame

PROMPTS = Tensors({"context": [[1.0, 2.0], [3.0, 4.0]]})
TIMER = ev.SetTimer(RESEND, RESEND_S)


def told(mode: Barrier, recipients: int = 5) -> tuple[Gossip, list[ev.Send]]:
    """Return a node after its first tuning with peers b and c, and what it sent them."""
    rounds = RoundSettings(mode=mode, max=5)
    context = frame("zerodfl", rounds=rounds, samples=0)
    policy = ZeroDFL.start(ZeroDFLConfig(recipients=recipients), context, PROMPTS)
    for peer in ("b", "c"):
        policy.handle(0.0, ev.PeerUp(peer))
    (tune,) = policy.handle(0.0, ev.RoundDue(1))
    assert isinstance(tune, ev.Tune)
    effects = policy.handle(0.0, ev.Tuned(tune.job, Report(tensors=PROMPTS, metrics={}, samples=1)))
    return policy, sends(effects)


def sends(effects: Sequence[ev.Effect]) -> list[ev.Send]:
    return [one for one in effects if isinstance(one, ev.Send)]


def lost(send: ev.Send) -> ev.Undelivered:
    return ev.Undelivered(send.to, send.message, "unreachable", "nobody answers")


def test_what_was_lost_is_sent_again_until_it_arrives() -> None:
    policy, sent = told("sync")
    assert [(one.to, one.message.phase) for one in sent] == [("b", "prompts"), ("c", "prompts")]
    for _ in range(3):
        assert policy.handle(0.0, lost(sent[0])) == [TIMER]
        assert policy.handle(0.0, ev.TimerFired(RESEND)) == [sent[0]]
    assert policy.handle(0.0, ev.TimerFired(RESEND)) == []


def test_a_marker_that_was_lost_is_sent_again() -> None:
    policy, sent = told("sync", recipients=1)
    (marker,) = (one for one in sent if one.message.phase == "done")
    assert policy.handle(0.0, lost(marker)) == [TIMER]
    assert policy.handle(0.0, ev.TimerFired(RESEND)) == [marker]


def test_rows_that_went_to_another_leave_a_marker_to_send() -> None:
    policy, sent = told("sync", recipients=1)
    (rows,) = (one for one in sent if one.message.phase == "prompts")
    redrawn, timer = policy.handle(0.0, lost(rows))
    assert isinstance(redrawn, ev.Send)
    assert redrawn.to != rows.to
    assert timer == TIMER
    (again,) = sends(policy.handle(0.0, ev.TimerFired(RESEND)))
    assert (again.to, again.message.phase) == (rows.to, "done")


def test_the_dead_are_owed_nothing() -> None:
    policy, sent = told("sync")
    policy.handle(0.0, lost(sent[0]))
    policy.handle(0.0, ev.PeerDown(sent[0].to))
    assert policy.handle(0.0, ev.TimerFired(RESEND)) == []
    assert policy.handle(0.0, lost(sent[0])) == []


@pytest.mark.parametrize("number", [0, 2])
def test_a_message_of_another_round_is_left_alone(number: int) -> None:
    policy, sent = told("sync")
    message = sent[0].message
    other = replace(message, sender="a", round=number, phase="prompts", tensors=PROMPTS)
    assert policy.handle(0.0, ev.Undelivered("b", other, "unreachable", "")) == []


def test_async_waits_for_nobody_and_owes_nothing() -> None:
    policy, sent = told("async")
    assert not [one for one in policy.handle(0.0, lost(sent[0])) if isinstance(one, ev.SetTimer)]
