"""Whether a node whose rounds are over begins them again, by value; meshes: tests/simulation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fednode.core import events as ev
from fednode.core.kernel import Kernel
from fednode.core.members.table import Members
from fednode.core.redo import OFFERED, REDOS_MAX, Redo
from fednode.core.settings import StartSettings
from fednode.core.types import Again, MergeCounts, Snapshot
from tests.unit.core.scenes import FACTS, PROMPTS, context, message, only, recorded, zerodfl
from tests.unit.core.test_kernel import tuned

ALL = StartSettings(peers=2)


def made(redo: bool = False, start: StartSettings = ALL, **set_: Any) -> Redo:
    """Return the wait of node "a", which ran five rounds alone, for "b" and "c", which live."""
    members = Members("bc")
    for name in "bc":
        members.heard(name, 1.0, 0)
    return Redo(context(redo=redo, start=start), members, 0, **{"never": True, **set_})


@pytest.mark.parametrize(
    ("redo", "set_", "word"),
    [
        (False, {}, "ended"),
        (True, {}, "again"),
        (True, {"done": REDOS_MAX}, "ended"),
        (True, {"done": REDOS_MAX, "asked": True}, "again"),
        (False, {"asked": True}, "again"),
        (True, {"never": False}, ""),
        (False, {"never": False, "asked": True}, "again"),
    ],
)
def test_the_word_of_a_node_whose_rounds_are_over(
    redo: bool, set_: dict[str, Any], word: Again
) -> None:
    node = made(redo, **set_)
    assert node.word(paused=False) == word
    assert node.word(paused=True) == ("ended" if node.never else "")


@pytest.mark.parametrize(
    ("word", "round_", "catches_up", "never", "takes_part"),
    [
        ("again", 5, False, True, True),
        ("ended", 5, True, True, False),
        ("", 3, False, True, True),
        ("", 5, False, True, False),
        ("", 5, True, True, True),
        ("", 5, True, False, False),
    ],
)
def test_which_peer_can_take_part(
    word: Again, round_: int, catches_up: bool, never: bool, takes_part: bool
) -> None:
    node = made(catches_up=catches_up, never=never)
    node.members.heard("b", 2.0, round_)
    node.members.said("b", word)
    assert node.takes_part("b") == takes_part
    assert node.begins("again") == takes_part
    assert ("b" in node.awaited) != takes_part
    if not takes_part:
        assert "fednode redo b" in node.awaited


def test_a_node_begins_once_and_with_one_peer_at_least() -> None:
    node = made()
    assert node.begins("again")
    assert not node.begins("ended")
    node.under_way = True
    assert not node.begins("again")
    lonely = made(start=StartSettings(peers=0))
    for name in "bc":
        lonely.members.left(name, 2.0)
    assert not lonely.begins("again")
    lonely.members.heard("b", 3.0, 0)
    assert lonely.begins("again")


def test_it_is_offered_once_and_only_to_a_node_that_met_a_peer() -> None:
    node = made()
    (record,) = node.offers("ended")
    assert (record.kind, record.level) == (OFFERED, "warning")
    assert "b, c can be reached now: fednode redo a begins" in record.text
    assert node.offers("ended") == []
    assert made().offers("again") == made().offers("") == []


def alone(rounds: int = 2, **settings: Any) -> Kernel:
    """Return node "a" after its rounds, which it ran alone."""
    policy = zerodfl(max=rounds, start=StartSettings(timeout_s=0.0), **settings)
    anew = partial(zerodfl, max=rounds, **settings)
    kernel = Kernel(policy._context, policy, FACTS, anew=anew)
    effects = kernel.step(0.0, ev.Started())
    effects += kernel.step(0.0, ev.TimerFired("kernel.start"))
    for _ in range(rounds):
        (adopt,) = only(kernel.step(0.0, tuned(effects)), ev.Adopt)
        effects = kernel.step(0.0, ev.Adopted(adopt.snapshot))
    assert "life.finished" in recorded(effects)
    return kernel


def hello(sender: str, redo: Again = "", **changed: Any) -> ev.Received:
    return ev.Received(message("hello", sender, **{"round": 0, "redo": redo, **changed}), 7)


def test_answers_and_messages_tell_the_word_until_the_run_begins_again() -> None:
    kernel = alone()
    effects = kernel.step(1.0, hello("b"))
    assert only(effects, ev.Answer) == [ev.Answer(7, "ended")]
    assert OFFERED in recorded(effects)
    effects = kernel.step(2.0, ev.Commanded("redo"))
    hellos = [one.message for one in only(effects, ev.Send) if one.message.phase == "hello"]
    assert [one.redo for one in hellos] == ["again"]
    assert "c (no answer)" in kernel.view().redo_waits
    effects = kernel.step(3.0, hello("c", "again"))
    assert only(effects, ev.Answer) == [ev.Answer(7, "again")]
    (adopt,) = only(effects, ev.Adopt)
    snapshot = adopt.snapshot
    assert (snapshot.policy.round, snapshot.redone, snapshot.merge_counts) == (0, 1, (0, 0))
    assert snapshot.policy.tensors == PROMPTS
    assert kernel.view().round == 2, "nothing follows before it is durable"
    effects = kernel.step(4.0, ev.Adopted(snapshot))
    hellos = [one.message for one in only(effects, ev.Send) if one.message.phase == "hello"]
    assert {(one.redo, one.round) for one in hellos} == {("", 0)}
    view = kernel.view()
    assert (view.life, view.round, view.redo, view.merge_counts) == ("waiting", 0, "", (0, 0))
    assert view.awaited == "c (it begins its rounds again as soon as its peers are there)"
    effects = kernel.step(5.0, hello("c"))
    assert only(effects, ev.Tune)[0].job.round == 1


def test_a_beginning_that_cannot_be_stored_is_tried_again() -> None:
    kernel = alone(redo=True)
    kernel.step(1.0, hello("b", "again"))
    (adopt,) = only(kernel.step(1.0, hello("c", "again")), ev.Adopt)
    effects = kernel.step(2.0, ev.AdoptFailed(adopt.snapshot, "the disk is full"))
    assert only(effects, ev.SetTimer) == [ev.SetTimer("kernel.retry", 1.0)]
    assert only(kernel.step(2.5, hello("b", "ended")), ev.Adopt) == []
    assert only(kernel.step(3.0, ev.TimerFired("kernel.retry")), ev.Adopt) == [adopt]
    kernel.step(4.0, ev.Adopted(adopt.snapshot))
    assert kernel.view().round == 0


def test_the_acknowledgement_of_a_hello_tells_the_word_of_the_peer() -> None:
    policy = zerodfl(start=ALL)
    kernel = Kernel(policy._context, policy, FACTS, anew=zerodfl)
    sent = only(kernel.step(0.0, ev.Started()), ev.Send)
    by_peer = {one.to: one.message for one in sent}
    kernel.step(1.0, ev.acknowledged("b", by_peer["b"], "ended", ""))
    effects = kernel.step(1.0, ev.acknowledged("c", by_peer["c"], "ok", ""))
    assert only(effects, ev.Tune) == [], "b is live and cannot take part"
    assert "fednode redo b" in kernel.view().awaited
    effects = kernel.step(2.0, hello("b"))
    assert len(only(effects, ev.Tune)) == 1


def test_a_node_paused_while_its_beginning_is_stored_stays_paused() -> None:
    kernel = alone(redo=True)
    kernel.step(1.0, hello("b", "again"))
    (adopt,) = only(kernel.step(1.0, hello("c", "again")), ev.Adopt)
    kernel.step(1.5, ev.Commanded("pause"))
    effects = kernel.step(2.0, ev.Adopted(adopt.snapshot))
    assert only(effects, ev.Tune) == []
    assert "start.waiting" not in recorded(effects)
    assert kernel.view().life == "paused"
    kernel.step(3.0, hello("b"))
    kernel.step(3.0, hello("c"))
    assert only(kernel.step(4.0, ev.Commanded("resume")), ev.Tune)[0].job.round == 1


def test_an_old_timer_of_the_start_does_not_begin_the_rounds_again() -> None:
    """A node that was restarted and waits without end now, because its peers are elsewhere."""
    kernel = alone(redo=True)
    kernel.step(1.0, hello("b", "again"))
    (adopt,) = only(kernel.step(1.0, hello("c", "again")), ev.Adopt)
    effects = kernel.step(2.0, ev.Adopted(adopt.snapshot))
    timers = [one for one in effects if isinstance(one, ev.CancelTimer | ev.SetTimer)]
    assert timers[0] == ev.CancelTimer("kernel.start")


def test_what_a_peer_says_is_kept_for_members_only() -> None:
    members = Members("bc")
    members.said("b", "")
    assert (members.redo, members.reworded) == ({}, set())
    members.said("b", "ended")
    assert (members.redo, members.reworded) == ({"b": "ended"}, {"b"})
    members.said("b", "", 1)
    assert (members.redo, members.runs) == ({}, {"b": 1})
    members.said("b", "again", 0)
    assert members.redo == {}, "it was said before the run began again"
    members.said("b", "ended", 1)
    assert members.redo == {"b": "ended"}
    members.said("b", "", 0, anew=True)
    assert (members.redo, members.runs["b"]) == ({}, 0), "its state directory was emptied"
    kernel = alone()
    stranger = replace(message("hello", "zoe", round=0), redo="again", mesh="another")
    kernel.step(1.0, ev.Received(stranger, 3))
    assert "zoe" not in kernel._members.redo


def test_the_first_hellos_of_a_node_that_starts_again_tell_its_word() -> None:
    policy = zerodfl(max=2, start=ALL)
    state = replace(policy.state(), round=2)
    held = Snapshot(state, {}, merge_counts=MergeCounts(2, 0), redone=1)
    policy = policy.restore(policy._config, policy._context, state)
    kernel = Kernel(policy._context, policy, FACTS, restored=held, anew=zerodfl)
    sent = [one.message for one in only(kernel.step(0.0, ev.Started()), ev.Send)]
    assert [(one.phase, one.redo, one.run) for one in sent] == [("hello", "ended", 1)] * 2


def test_a_message_of_an_earlier_run_makes_no_contribution_stale() -> None:
    policy = zerodfl(start=ALL)
    kernel = Kernel(policy._context, policy, FACTS, anew=zerodfl)
    kernel.step(0.0, ev.Started())
    kernel.step(1.0, hello("b", run=1))
    kernel.step(1.1, ev.Received(message("ping", round=5, redo="again", run=0), 8))
    assert kernel.view().peers[0].round == 0
    answers = only(kernel.step(1.2, ev.Received(message(round=1), 9)), ev.Answer)
    assert [one.code for one in answers] == ["ok"]
    kernel.step(1.3, ev.Received(message("ping", round=5, run=1), 10))
    answers = only(kernel.step(1.4, ev.Received(message(round=2), 11)), ev.Answer)
    assert [one.code for one in answers] == ["stale"]
    kernel.step(1.5, hello("b", run=0))
    assert kernel.view().peers[0].round == 0, "its state directory was emptied"


def test_a_node_that_agreed_looks_for_its_peers_with_every_probe() -> None:
    """The rounds of a peer may have begun again although none of its words arrived."""
    kernel = alone(redo=True)
    kernel.step(1.0, hello("b", "again"))
    kernel.step(1.0, hello("c", round=5))
    assert "c (it has run its rounds and sends nothing more" in kernel.view().redo_waits
    kernel.step(2.0, ev.Received(message("ping", "c", round=1), 9))
    assert only(kernel.step(2.5, ev.TimerFired("kernel.probe")), ev.Adopt)
