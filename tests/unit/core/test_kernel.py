"""Defects in a policy or in the membership end no node. Its other steps are transcripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from fednode.core import events as ev
from fednode.core.kernel import ROUND, Kernel
from fednode.core.policy import Policy
from fednode.core.types import Message, Report, Tensors
from tests.unit.core.scenes import FACTS, context, message, only, recorded, zerodfl


def tuned(effects: list[ev.Effect]) -> ev.Tuned:
    """Return the good end of the Tune among the effects."""
    (tune,) = only(effects, ev.Tune)
    prompts = Tensors({"context": [[1.0, 2.0], [3.0, 4.0]]})
    return ev.Tuned(tune.job, Report(tensors=prompts, metrics={"loss": 0.5}, samples=8))


class Failing:
    """A policy that raises where it is told to, at the events of a type."""

    def __init__(self, inner: Policy, at: Any) -> None:
        self._inner, self.at = inner, at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def fault(self, message: Message) -> str:
        if self.at == "fault":
            raise ValueError("shapes (3,) and (2,)")
        return self._inner.fault(message)

    def handle(self, now: float, event: ev.Event) -> Sequence[ev.Effect]:
        if isinstance(self.at, type) and isinstance(event, self.at):
            raise ValueError("shapes (3,) and (2,)")
        return self._inner.handle(now, event)


def failing(at: Any) -> tuple[Kernel, list[ev.Effect]]:
    """Return a kernel whose policy fails, and what began its first round."""
    kernel = Kernel(context(), cast("Policy", Failing(zerodfl(), at)), FACTS, anew=zerodfl)
    kernel.step(0.0, ev.Started())
    hello = message("hello", round=0, facts=FACTS)
    return kernel, kernel.step(0.0, ev.Received(hello, 7))


@pytest.mark.parametrize("at", ["fault", ev.Received])
def test_a_message_on_which_a_policy_raises_is_refused_and_costs_its_sender_a_point(
    at: Any,
) -> None:
    kernel, began = failing(at)
    policy, records = kernel.policy, list[ev.Record]()
    for number in range(1, 6):
        kernel.policy = policy
        effects = kernel.step(1.0, ev.Received(message(round=number), number))
        answers = [(one.token, one.code) for one in only(effects, ev.Answer)]
        assert answers == [(number, "invalid")]
        assert (kernel.policy is policy) == (at == "fault"), "what raised may have changed by half"
        records += [one for one in only(effects, ev.Record) if one.cause]
    assert only(effects, ev.TurnAway), "quarantined"
    assert [str(one.cause) for one in records] == ["shapes (3,) and (2,)"], "reported once"
    assert only(kernel.step(2.0, tuned(began)), ev.Adopt) or at != "fault", "the round goes on"


def test_a_policy_that_fails_by_what_peers_said_goes_on_from_its_last_round() -> None:
    kernel, began = failing(ev.Tuned)
    kernel.step(1.0, ev.Received(message(), 2))
    effects = kernel.step(2.0, tuned(began))
    assert recorded(effects) == ["policy.failed"]
    assert ev.SetTimer(ROUND, 1.0) in effects
    again = kernel.step(3.0, ev.TimerFired(ROUND))
    assert only(again, ev.Tune) == only(began, ev.Tune)
    (adopt,) = only(kernel.step(4.0, tuned(again)), ev.Adopt)
    assert adopt.snapshot.policy.round == 1


def test_a_policy_that_fails_by_itself_ends_the_node() -> None:
    kernel, began = failing(ev.Tuned)
    with pytest.raises(ValueError, match="shapes"):
        kernel.step(2.0, tuned(began))


def test_a_defect_that_a_membership_message_meets_ends_no_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel(context(), zerodfl(), FACTS, anew=zerodfl)

    def broken(*_: Any) -> list[ev.Effect]:
        raise KeyError("lost")

    monkeypatch.setattr(kernel._swim, "learn", broken)
    effects = kernel.step(1.0, ev.Received(message("ping", "b"), 7))
    assert [(one.token, one.code) for one in only(effects, ev.Answer)] == [(7, "invalid")]
    assert [type(one.cause) for one in only(effects, ev.Record) if one.cause] == [KeyError]
