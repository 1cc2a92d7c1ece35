"""A node's life: when rounds begin and end, what an operator may ask, what failures do to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from fednode.core import events as ev
from fednode.core.kernel import RETRY, ROUND, START, Kernel
from fednode.core.members.swim import PROBE, SUSPECT
from fednode.core.policy import Policy
from fednode.core.settings import GuardSettings, StartSettings
from fednode.core.types import MEASURE, Message, Report, Snapshot, Tensors, Update
from fednode.policies.local import Local, LocalConfig
from tests.unit.core.scenes import FACTS, PROMPTS, context, local, message, only, recorded, zerodfl

ALONE = StartSettings(peers=0)


def make(policy: Policy | None = None, guard: GuardSettings | None = None, **rounds: Any) -> Kernel:
    policy = policy or local(**rounds)
    frame = replace(context(policy.name, **rounds), guard=guard or GuardSettings())
    return Kernel(frame, policy, FACTS, anew=local)


def hello(sender: str = "b", number: int = 0, **changed: Any) -> ev.Received:
    return ev.Received(message("hello", sender, round=number, **changed), 7)


def tuned(effects: list[ev.Effect], value: float = 1.0, **metrics: float) -> ev.Tuned:
    """Return the good end of the Tune among the effects."""
    (tune,) = only(effects, ev.Tune)
    prompts = Tensors({"context": [[value, 2.0], [3.0, 4.0]]})
    return ev.Tuned(tune.job, Report(tensors=prompts, metrics={"loss": 0.5, **metrics}, samples=8))


def begin(kernel: Kernel) -> list[ev.Effect]:
    """Start with nobody to wait for; return the effects of round one."""
    return kernel.step(0.0, ev.Started())


def round_of(
    kernel: Kernel, effects: list[ev.Effect], now: float, **metrics: float
) -> list[ev.Effect]:
    """Carry a round through; return what begins the next."""
    (adopt,) = only(kernel.step(now, tuned(effects, now, **metrics)), ev.Adopt)
    return kernel.step(now, ev.Adopted(adopt.snapshot))


# Start --------------------------------------------------------------------------------------------


def test_started_greets_every_peer_with_the_facts_and_sets_the_latest_time() -> None:
    effects = make().step(0.0, ev.Started())
    assert ev.SetTimer(START, 120.0) in effects
    sends = only(effects, ev.Send)
    assert [(one.to, one.message.phase) for one in sends] == [("b", "hello"), ("c", "hello")]
    assert all(dict(one.message.facts) == FACTS for one in sends)
    assert not only(effects, ev.Tune)


def test_round_one_begins_with_the_peers_asked_for_and_not_before() -> None:
    kernel = make(start=StartSettings(peers=2))
    kernel.step(0.0, ev.Started())
    assert not only(kernel.step(0.1, hello("b", policy="local")), ev.Tune)
    (tune,) = only(kernel.step(0.2, hello("c", policy="local")), ev.Tune)
    assert tune.job.round == 1
    assert kernel.view().life == "running"


def test_an_answered_hello_counts_as_a_peer() -> None:
    kernel = make()
    kernel.step(0.0, ev.Started())
    assert only(kernel.step(0.1, ev.Delivered("b", message("hello", "a"))), ev.Tune)


def test_a_peer_that_still_loads_is_not_there_yet() -> None:
    kernel = make()
    kernel.step(0.0, ev.Started())
    effects = kernel.step(0.1, ev.Undelivered("b", message("hello", "a"), "busy", "it loads"))
    assert not only(effects, ev.Tune)
    assert only(kernel.step(1.1, ev.Delivered("b", message("hello", "a"))), ev.Tune)


def test_round_one_begins_alone_when_the_time_is_up() -> None:
    kernel = make()
    kernel.step(0.0, ev.Started())
    assert only(kernel.step(30.0, ev.TimerFired(START)), ev.Tune)
    assert kernel.view().alone


def test_the_start_timer_begins_nothing_twice() -> None:
    kernel = make(start=ALONE)
    begin(kernel)
    assert kernel.step(30.0, ev.TimerFired(START)) == []


# Rounds -------------------------------------------------------------------------------------------


def test_rounds_follow_each_other_to_the_last_and_then_the_node_serves_on() -> None:
    kernel = make(start=ALONE, max=3)
    effects = begin(kernel)
    for number in (1, 2, 3):
        assert only(effects, ev.Tune)[0].job.round == number
        effects = round_of(kernel, effects, float(number))
    assert not only(effects, ev.Tune)
    assert recorded(effects) == ["round.adopted", "life.finished"]
    view = kernel.view()
    assert (view.life, view.round, view.metrics) == ("finished", 3, {"loss": 0.5})
    assert only(kernel.step(9.0, hello("b", policy="local")), ev.Answer) == [ev.Answer(7, "ok")]


def test_max_0_has_no_end() -> None:
    kernel = make(start=ALONE, max=0)
    effects = begin(kernel)
    for number in range(1, 20):
        effects = round_of(kernel, effects, float(number))
        assert only(effects, ev.Tune)[0].job.round == number + 1


def test_the_least_interval_is_from_start_to_start() -> None:
    kernel = make(start=ALONE, min_interval_s=10.0)
    effects = round_of(kernel, begin(kernel), 4.0)
    assert only(effects, ev.SetTimer) == [ev.SetTimer(ROUND, 6.0)]
    assert not only(effects, ev.Tune)
    assert only(kernel.step(10.0, ev.TimerFired(ROUND)), ev.Tune)


def test_what_was_best_is_stored_with_every_round() -> None:
    kernel = make(start=ALONE)
    effects = begin(kernel)
    for number, accuracy in enumerate((0.5, 0.8, 0.8, 0.6), 1):
        (adopt,) = only(kernel.step(0.0, tuned(effects, number, validation=accuracy)), ev.Adopt)
        effects = kernel.step(0.0, ev.Adopted(adopt.snapshot))
    assert (adopt.snapshot.best_round, adopt.snapshot.best_validation) == (2, 0.8)
    assert adopt.snapshot.best["context"][0, 0] == 2.0


def test_each_adopted_round_counts_and_those_with_givers_as_merged() -> None:
    kernel = make(start=ALONE)
    for givers, counts in (((), (1, 0)), (("b",), (2, 1)), (("b", "c"), (3, 2)), ((), (4, 2))):
        given = ev.Adopt(Snapshot(kernel.policy.state(), {}), givers)
        (adopt,) = only([kernel._completed(given)], ev.Adopt)
        assert (adopt.givers, adopt.snapshot.merge_counts) == (givers, counts)
        kernel.step(0.0, ev.Adopted(adopt.snapshot))


def test_what_is_only_tried_is_not_the_best() -> None:
    kernel = make(start=ALONE)
    effects = round_of(kernel, begin(kernel), 1.0, validation=0.8)
    (tune,) = only(effects, ev.Tune)
    trial = Report(tensors=tune.job.tensors, metrics={"validation": 0.9}, samples=8)
    kernel.step(0.0, ev.Tuned(replace(tune.job, stage=MEASURE, measure=False), trial))
    assert kernel.view().best_validation == 0.8


# Failures -----------------------------------------------------------------------------------------


def test_a_tuning_that_fails_is_tried_again_with_growing_pauses_up_to_a_limit() -> None:
    kernel = make(start=ALONE)
    effects, pauses = begin(kernel), []
    for _ in range(9):
        (tune,) = only(effects, ev.Tune)
        failed = kernel.step(0.0, ev.TuneFailed(tune.job, "no memory"))
        (record,) = only(failed, ev.Record)
        assert record.level == "error"
        assert record.text.startswith("no memory; trying again in")
        (timer,) = only(failed, ev.SetTimer)
        pauses.append(timer.delay_s)
        effects = kernel.step(0.0, ev.TimerFired(timer.name))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    effects = round_of(kernel, effects, 1.0)
    assert only(effects, ev.Tune)[0].job.round == 2


def test_a_commit_that_fails_is_tried_again_with_the_same_snapshot() -> None:
    kernel = make(start=ALONE)
    (asked,) = only(kernel.step(0.0, tuned(begin(kernel))), ev.Adopt)
    adopt = replace(asked, givers=("b",))
    failed = kernel.step(0.0, ev.AdoptFailed(adopt, "the disk is full"))
    assert only(failed, ev.SetTimer) == [ev.SetTimer(RETRY, 1.0)]
    assert kernel.step(1.0, ev.TimerFired(RETRY)) == [adopt]
    assert only(kernel.step(1.0, ev.Adopted(adopt.snapshot)), ev.Tune)
    assert kernel.step(2.0, ev.TimerFired(RETRY)) == []


# Operators ----------------------------------------------------------------------------------------


def command(kernel: Kernel, name: ev.Command) -> list[ev.Effect]:
    return kernel.step(1.0, ev.Commanded(name))


def test_pause_ends_the_round_under_way_and_begins_no_other_until_resume() -> None:
    kernel = make(start=ALONE)
    effects = begin(kernel)
    assert recorded(command(kernel, "pause")) == ["command"]
    effects = round_of(kernel, effects, 2.0)
    assert not only(effects, ev.Tune)
    assert (kernel.view().life, kernel.view().round) == ("paused", 1)
    assert only(command(kernel, "resume"), ev.Tune)[0].job.round == 2


def test_resume_in_the_middle_of_a_round_lets_it_end_first() -> None:
    kernel = make(start=ALONE)
    effects = begin(kernel)
    command(kernel, "pause")
    assert not only(command(kernel, "resume"), ev.Tune)
    assert only(round_of(kernel, effects, 2.0), ev.Tune)


def test_pause_holds_before_round_one_too() -> None:
    kernel = make()
    kernel.step(0.0, ev.Started())
    command(kernel, "pause")
    assert not only(kernel.step(30.0, ev.TimerFired(START)), ev.Tune)
    assert only(kernel.step(120.0, ev.Commanded("resume")), ev.Tune)


def test_leave_says_goodbye_to_who_lives_and_ends_all_rounds() -> None:
    kernel = make(start=StartSettings(peers=1))
    kernel.step(0.0, ev.Started())
    effects = kernel.step(0.0, hello("b", policy="local"))
    told = command(kernel, "leave")
    assert [(one.to, one.message.phase) for one in only(told, ev.Send)] == [("b", "bye")]
    assert not only(round_of(kernel, effects, 2.0), ev.Tune)
    assert kernel.step(3.0, ev.TimerFired(PROBE)) == []
    assert kernel.view().life == "leaving"
    (answer,) = only(kernel.step(4.0, hello("b", policy="local")), ev.Answer)
    assert (answer.code, answer.detail) == ("busy", "this node is leaving the mesh")


@pytest.mark.parametrize("name", ["resume", "accept"])
def test_what_cannot_be_done_now_says_so(name: ev.Command) -> None:
    kernel = make()
    kernel.step(0.0, ev.Started())
    (record,) = only(command(kernel, name), ev.Record)
    assert record.level == "warning"
    assert record.text == f"{name} changes nothing: this node is waiting"


def test_stopping_begins_nothing_more() -> None:
    kernel = make(start=ALONE)
    effects = begin(kernel)
    assert kernel.step(1.0, ev.Stopping()) == []
    assert not only(round_of(kernel, effects, 2.0), ev.Tune)


def test_what_fails_while_stopping_is_not_tried_again() -> None:
    kernel = make(start=ALONE)
    (tune,) = only(begin(kernel), ev.Tune)
    kernel.step(1.0, ev.Stopping())
    assert kernel.view().life == "stopping"
    (answer,) = only(kernel.step(1.0, hello("b", policy="local")), ev.Answer)
    assert answer.detail == "this node is stopping; it is known again when it comes back"
    assert kernel.step(1.0, ev.TuneFailed(tune.job, "the tuning was cancelled")) == []


# Messages -----------------------------------------------------------------------------------------


def test_every_message_is_answered_once_with_its_own_token() -> None:
    kernel = make(zerodfl())
    for changed in ({}, {"mesh": "x"}, {"sender": "zoe"}, {"phase": "none"}, {"round": 1}):
        effects = kernel.step(0.0, ev.Received(message(**changed), 42))
        (answer,) = only(effects, ev.Answer)
        assert answer.token == 42
        assert bool(answer.detail) == (answer.code != "ok")


def test_refusals_are_counted_always_and_logged_once_for_each_sender_and_reason() -> None:
    kernel = make(zerodfl())
    logged = []
    for _ in range(5):
        logged += recorded(kernel.step(0.0, ev.Received(message(sender="zoe"), 1)))
        logged += recorded(kernel.step(0.0, ev.Received(message(mesh="x"), 1)))
    assert logged.count("message.refused") == 2
    assert kernel.view().refused == {"sender": 5, "mesh": 5}


def test_a_peer_of_another_configuration_is_shown_as_refused_at_both_ends() -> None:
    kernel = make(zerodfl())
    facts = {**FACTS, "tuning.context_length": "8"}
    effects = kernel.step(0.0, hello("b", fingerprint="0", facts=facts))
    text = "tuning.context_length is 2 at 'a' and 8 at 'b'"
    assert only(effects, ev.Answer) == [ev.Answer(7, "refused", text)]
    (peer, _) = kernel.view().peers
    assert (peer.state, peer.reason) == ("refused", text)
    kernel.step(1.0, hello("c"))
    kernel.step(1.0, ev.Undelivered("c", message("hello", "a"), "refused", "they differ"))
    assert kernel.view().peers[1].state == "refused"


def test_goodbye_makes_a_peer_dead_at_once() -> None:
    kernel = make(zerodfl())
    kernel.step(0.0, hello("b"))
    kernel.step(1.0, ev.Received(message("bye"), 1))
    assert kernel.view().peers[0].state == "left"
    assert kernel.view().alone


class Listening:
    """The control, with an ear."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner
        self.heard: list[object] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def handle(self, now: float, event: Any) -> Any:
        self.heard.append(event)
        return self._inner.handle(now, event)


def test_the_policy_hears_of_peers_that_come_and_go_once_each() -> None:
    listening = Listening(local())
    kernel, heard = make(cast("Policy", listening)), listening.heard
    sent = message("hello", "a", policy="local")
    for _ in range(3):
        kernel.step(0.0, hello("b", policy="local"))
    for _ in range(5):
        kernel.step(1.0, ev.Undelivered("b", sent, "unreachable", "nobody"))
    kernel.step(4.0, ev.TimerFired(SUSPECT + "b"))
    kernel.step(5.0, ev.Delivered("b", sent))
    kinds = [type(one).__name__ for one in heard if not isinstance(one, ev.RoundDue)]
    assert kinds == ["PeerUp", "PeerDown", "PeerUp"]
    assert heard[0] == ev.PeerUp("b")


def test_a_round_goes_by_the_members_of_today() -> None:
    listening = Listening(local())
    kernel = make(cast("Policy", listening), start=ALONE)
    effects = begin(kernel)
    kernel.step(0.0, ev.Told((Update("d", "alive", 0, "d:1"), Update("c", "revoked", 0))))
    round_of(kernel, effects, 1.0)
    due = [one for one in listening.heard if isinstance(one, ev.RoundDue)]
    assert [one.members for one in due] == [frozenset("bc"), frozenset("bd")]


def test_a_kernel_restored_goes_on_with_its_figures_and_its_best() -> None:
    kernel = make(start=ALONE)
    effects = begin(kernel)
    (adopt,) = only(kernel.step(0.0, tuned(effects, validation=0.7)), ev.Adopt)
    kernel.step(0.0, ev.Adopted(adopt.snapshot))
    policy = Local.restore(LocalConfig(), context("local"), adopt.snapshot.policy)
    again = Kernel(
        context("local", start=ALONE), policy, FACTS, restored=adopt.snapshot, anew=local
    )
    view = again.view()
    assert (view.round, view.best_round, view.best_validation) == (1, 1, 0.7)
    assert view.metrics == {"loss": 0.5, "validation": 0.7}
    assert only(again.step(0.0, ev.Started()), ev.Tune)[0].job.round == 2
    assert PROMPTS.norm() > 0


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
    return kernel, kernel.step(0.0, hello(facts=FACTS))


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
    kernel = make(zerodfl())

    def broken(*_: Any) -> list[ev.Effect]:
        raise KeyError("lost")

    monkeypatch.setattr(kernel._swim, "learn", broken)
    effects = kernel.step(1.0, ev.Received(message("ping", "b"), 7))
    assert [(one.token, one.code) for one in only(effects, ev.Answer)] == [(7, "invalid")]
    assert [type(one.cause) for one in only(effects, ev.Record) if one.cause] == [KeyError]
