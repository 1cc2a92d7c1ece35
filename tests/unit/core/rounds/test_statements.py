"""Rounds of statements: what is sent to whom, what a round waits for, and what is kept."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from fednode.core import events as ev
from fednode.core.rounds import statements
from fednode.core.rounds.statements import (
    HOLDS,
    STATEMENT,
    StatementRounds,
    pack,
    unpack,
)
from fednode.core.settings import RoundSettings
from fednode.core.types import Message, PolicyState, Report, Tensors
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
