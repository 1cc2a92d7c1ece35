"""Rounds of statements: what is sent to whom, what a round waits for, and what is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from fednode.core import events as ev
from fednode.core.rounds import statements
from fednode.core.rounds.statements import (
    COMBINE,
    HOLDS,
    STATEMENT,
    StatementRounds,
    pack,
    unpack,
)
from fednode.core.settings import RoundSettings
from fednode.core.types import EMPTY, Message, PolicyState, Report, Tensors
from fednode.policies.gda import GDA, GDAConfig
from fednode.testing import frame

INITIAL = Tensors({"rows": np.zeros((0, 3))})
CONTEXT = frame("gda", peers=("b", "c"), rounds=RoundSettings("sync", max=9, deadline_s=60.0))


def said(images: float = 2.0, *classes: str) -> Tensors:
    names = classes or ("ant",)
    return Tensors({"rows": [[images, 1.0, 0.0]] * len(names)}, names)


def from_peer(
    peer: str, number: int = 1, tensors: Tensors | None = None, holds: str | None = None
) -> Message:
    return Message(
        mesh="m", fingerprint="f", policy="gda", sender=peer, round=number, phase=STATEMENT,
        tensors=said() if tensors is None else tensors,
        facts={} if holds is None else {HOLDS: holds},
    )  # fmt: skip


class Node:
    """A policy and its host, which computes the statement `own`, and uses what it is given."""

    def __init__(self, state: PolicyState | None = None, **set_: Any) -> None:
        config = GDAConfig(**set_)
        made = GDA.restore(config, CONTEXT, state) if state else GDA.start(config, CONTEXT, INITIAL)
        self.policy = cast("StatementRounds", made)
        self.own, self.waits, self.done = said(3.0), False, list[ev.Effect]()

    def feed(self, event: ev.Event) -> list[ev.Effect]:
        """Hand an event on, and perform what can be performed at once."""
        effects = list(self.policy.handle(0.0, event))
        for effect in list(effects):
            match effect:
                case ev.Tune(job=job):
                    tensors = self.own if job.stage == STATEMENT else job.tensors
                    report = Report(tensors=tensors, metrics={"loss": 1.0}, samples=8)
                    effects += self.feed(ev.Tuned(job, report))
                case ev.Adopt(snapshot=snapshot) if not self.waits:
                    effects += self.feed(ev.Adopted(snapshot))
                case _:
                    pass
        return effects

    def hear(
        self, peer: str, number: int = 1, tensors: Tensors | None = None, holds: str | None = None
    ) -> Any:
        return sent(self.feed(ev.Received(from_peer(peer, number, tensors, holds))))

    def round(self, number: int, *members: str) -> list[ev.Effect]:
        known = frozenset(members) if members else None
        return self.feed(ev.RoundDue(number, members=known))

    @property
    def used(self) -> list[str]:
        return sorted(self.policy.state().tuned)


def sent(effects: list[ev.Effect]) -> list[tuple[str, Tensors]]:
    return [(one.to, one.message.tensors) for one in effects if isinstance(one, ev.Send)]


def met(*peers: str, node: Node | None = None) -> Node:
    node = node or Node()
    for peer in peers:
        node.feed(ev.PeerUp(peer))
    return node


def test_a_round_sends_the_statement_waits_for_silent_peers_and_combines() -> None:
    node = met("b", "c")
    effects = node.round(1)
    assert sent(effects) == [("b", node.own), ("c", node.own)]
    assert node.policy.activity == "exchanging"
    assert node.hear("b", holds=node.own.digest) == []
    assert node.policy.activity == "exchanging"
    node.hear("c", tensors=said(5.0, "bee"))
    assert (node.policy.activity, node.policy.round) == ("idle", 1)
    assert node.used == ["rows", "rows/b", "rows/c"]
    assert node.policy.state().tuned.classes == ("ant", "bee")
    assert unpack(node.policy.state().arrays) == {
        "a": node.own, "b": said(), "c": said(5.0, "bee")
    }  # fmt: skip


def test_the_jobs_are_one_for_the_statement_and_one_that_measures() -> None:
    node, jobs = met("b"), list[Any]()
    node.hear("b")
    effects = node.round(1)
    jobs = [one.job for one in effects if isinstance(one, ev.Tune)]
    assert [(job.stage, job.measure) for job in jobs] == [(STATEMENT, False), (COMBINE, True)]
    assert jobs[0].tensors == INITIAL
    assert sorted(jobs[1].tensors) == ["rows", "rows/b"]
    (adopt,) = (one for one in effects if isinstance(one, ev.Adopt))
    assert adopt.givers == ("b",)


def test_a_statement_that_did_not_change_is_not_sent_again() -> None:
    node = met("b")
    node.hear("b")
    assert sent(node.round(1)) == [("b", node.own)]
    assert sent(node.round(2)) == []
    node.own = said(4.0)
    assert sent(node.round(3)) == [("b", node.own)]


def test_who_comes_gets_the_statement_and_who_holds_another_gets_it_once_a_round() -> None:
    node = met("b")
    node.hear("b")
    node.round(1)
    (send,) = (one for one in node.feed(ev.PeerUp("c")) if isinstance(one, ev.Send))
    assert (send.to, send.message.tensors) == ("c", node.own)
    assert send.message.facts == {HOLDS: EMPTY.digest}
    assert node.hear("b", 2, holds=node.own.digest) == []
    assert node.hear("b", 2, holds="old") == [("b", node.own)]
    assert node.hear("b", 2, holds="old") == []
    node.round(2)
    assert node.hear("b", 3) == [("b", node.own)]


def test_a_node_without_a_statement_yet_sends_none() -> None:
    node = met("b")
    assert node.hear("b", holds="x") == []


def test_the_newest_statement_of_a_sender_counts_and_one_that_comes_back_begins_anew() -> None:
    node = met("b")
    node.hear("b", 7, said(7.0))
    node.hear("b", 6, said(6.0))
    node.round(1)
    assert unpack(node.policy.state().arrays)["b"] == said(7.0)
    node.feed(ev.PeerDown("b"))
    node.feed(ev.PeerUp("b"))  # it lost its state, and begins at round 1
    node.hear("b", 1, said(1.0))
    node.round(2)
    assert unpack(node.policy.state().arrays)["b"] == said(1.0)


def test_a_silent_peer_costs_one_deadline_and_counts_when_it_speaks() -> None:
    node = met("b", "c")
    node.hear("c")
    node.round(1)
    effects = node.feed(ev.TimerFired("policy.deadline"))
    (record,) = (one for one in effects if isinstance(one, ev.Record))
    assert record.text.startswith("round 1: b sent nothing before the deadline; this node goes on")
    assert node.policy.round == 1
    node.round(2)
    assert node.policy.round == 2, "no round waits for it again"
    node.hear("b", 3)
    node.round(3)
    assert node.used == ["rows", "rows/b", "rows/c"]


def test_a_peer_that_dies_is_not_waited_for_and_its_statement_stays() -> None:
    node = met("b", "c")
    node.hear("b")
    node.round(1)
    node.feed(ev.PeerDown("c"))
    assert node.policy.round == 1
    node.feed(ev.PeerDown("b"))
    node.round(2)
    assert node.used == ["rows", "rows/b"]


def test_who_left_or_was_removed_is_dropped() -> None:
    node = met("b", "c")
    node.hear("b")
    node.hear("c")
    node.round(1, "b", "c")
    assert node.used == ["rows", "rows/b", "rows/c"]
    node.feed(ev.PeerDown("b"))
    node.round(2, "c")
    assert node.used == ["rows", "rows/c"]
    assert sorted(unpack(node.policy.state().arrays)) == ["a", "c"]


def test_a_statement_that_got_lost_is_sent_again_while_its_peer_lives() -> None:
    node = met("b", "c")
    sends = [one for one in node.round(1) if isinstance(one, ev.Send)]
    for one in sends:
        lost = ev.Undelivered(one.to, one.message, "unreachable", "nobody")
        assert [type(effect) for effect in node.feed(lost)] == [ev.SetTimer]
    node.feed(ev.PeerDown("c"))
    assert sent(node.feed(ev.TimerFired("policy.resend"))) == [("b", node.own)]
    assert sent(node.feed(ev.TimerFired("policy.resend"))) == []
    assert node.feed(ev.Undelivered("b", sends[0].message, "invalid", "no")) == []


def test_a_node_that_starts_again_has_its_statement_and_those_of_others() -> None:
    node = met("b")
    node.hear("b")
    node.round(1)
    again = Node(node.policy.state())
    assert sent(again.feed(ev.PeerUp("c"))) == [("c", node.own)]
    again.hear("c", 5)
    assert sent(again.round(2)) == []
    assert again.used == ["rows", "rows/b", "rows/c"]
    assert again.policy.state().round == 2


def test_a_member_that_tells_each_peer_something_else_harms_nobody_s_rounds() -> None:
    """There is no common state: each node combines what it was told, and no round ends early."""
    for claim in (1.0, 2.0, 3.0):
        node = met("b", "c")
        node.hear("b")
        node.hear("c", tensors=said(claim))
        for number in (1, 2, 3):
            effects = node.round(number)
            assert not [one for one in effects if isinstance(one, ev.Record)]
        assert unpack(node.policy.state().arrays)["b"] == said()


def test_a_combination_that_fails_is_tried_again() -> None:
    policy = Node().policy
    (tune,) = policy.handle(0.0, ev.RoundDue(1))
    assert isinstance(tune, ev.Tune)
    made = Report(tensors=said(), metrics={}, samples=8, carry=Tensors({"x": [1.0]}))
    (*_, second) = policy.handle(0.0, ev.Tuned(tune.job, made))
    assert isinstance(second, ev.Tune)
    assert (second.job.stage, second.job.carry) == (COMBINE, made.carry)
    policy.handle(0.0, ev.TuneFailed(second.job, "no memory"))
    assert (policy.activity, policy.round) == ("idle", 0)
    (again,) = policy.handle(0.0, ev.RoundDue(1))
    assert isinstance(again, ev.Tune)
    assert again.job == replace(tune.job, carry=made.carry)


def test_whose_classes_have_no_room_is_noted_once() -> None:
    node, many = met("b", node=Node(classes_max=2)), said(1.0, "ant", "bee", "cow")
    node.hear("b", tensors=many)

    def notes(number: int) -> list[str]:
        return [one.text for one in node.round(number) if isinstance(one, ev.Record)]

    (note,) = notes(1)
    assert note.startswith(
        "1 of the 3 classes of b do not count: policy.classes_max has room for 2"
    )
    assert unpack(node.policy.state().tuned)["b"].classes == ("ant", "bee")
    assert notes(2) == []
    node.hear("b", 3, said(1.0, "ant"))
    assert notes(3) == ["all that the peers sent counts again"]


def test_what_does_not_count_is_not_kept_where_statements_take_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, many = met("b", node=Node(classes_max=2)), said(1.0, "ant", "bee", "cow")
    node.hear("b", tensors=many)
    node.round(1)
    assert unpack(node.policy.state().arrays)["b"] == many
    monkeypatch.setattr(statements, "BYTES_MAX", 40)
    node.hear("b", 2, tensors=many)
    node.round(2)
    assert unpack(node.policy.state().arrays)["b"].classes == ("ant", "bee")


def test_packed_statements_come_back() -> None:
    held = {"b": said(1.0, "bee", "cow"), "a/x": said(2.0), "": Tensors({"rows": np.zeros((0, 3))})}
    assert unpack(pack(held)) == held
    assert pack(held).classes == ("ant", "bee", "cow")
    assert unpack(Tensors({"rows": np.zeros((0, 3)), "own": [1.0]})) == {}
