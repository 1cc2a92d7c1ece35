"""Rounds of statements: what is sent to whom, what a round waits for, and what is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from fednode.core import events as ev
from fednode.core.rounds import statements
from fednode.core.rounds.statements import STATEMENT, StatementRounds, pack, unpack
from fednode.core.settings import RoundSettings
from fednode.core.types import Report, Tensors
from fednode.policies.gda import GDA, GDAConfig
from fednode.testing import frame

INITIAL = Tensors({"rows": np.zeros((0, 3))})
CONTEXT = frame("gda", peers=("b", "c"), rounds=RoundSettings("sync", max=9, deadline_s=60.0))


def said(images: float = 2.0, *classes: str) -> Tensors:
    names = classes or ("ant",)
    return Tensors({"rows": [[images, 1.0, 0.0]] * len(names)}, names)


class Node:
    """A policy and its host, which trains nothing and adopts each round at once."""

    def __init__(self, **set_: Any) -> None:
        made = GDA.start(GDAConfig(**set_), CONTEXT, INITIAL)
        self.policy = cast("StatementRounds", made)
        for peer in CONTEXT.peers:
            self.feed(ev.PeerUp(peer))

    def feed(self, event: ev.Event) -> list[ev.Effect]:
        """Hand an event on, and perform what can be performed at once."""
        effects = list(self.policy.handle(0.0, event))
        for effect in list(effects):
            match effect:
                case ev.Tune(job=job):
                    tensors = said(3.0) if job.stage == STATEMENT else job.tensors
                    report = Report(tensors=tensors, metrics={"loss": 1.0}, samples=8)
                    effects += self.feed(ev.Tuned(job, report))
                case ev.Adopt(snapshot=snapshot):
                    effects += self.feed(ev.Adopted(snapshot))
                case _:
                    pass
        return effects

    def round(self, number: int, **statements: Tensors) -> list[ev.Effect]:
        """Return what comes of a round before which peers sent statements."""
        for peer, tensors in statements.items():
            message = replace(CONTEXT.message(number, STATEMENT, tensors), sender=peer)
            self.feed(ev.Received(message))
        return self.feed(ev.RoundDue(number))

    @property
    def held(self) -> Tensors:
        """The arrays that the node keeps of b."""
        return unpack(self.policy.state().arrays)["b"]


def test_a_member_that_tells_each_peer_something_else_harms_nobody_s_rounds() -> None:
    """There is no common state: each node combines what it was told, and no round ends early."""
    for claim in (1.0, 2.0, 3.0):
        node = Node()
        for number in (1, 2, 3):
            effects = node.round(number, b=said(), c=said(claim))
            assert not [one for one in effects if isinstance(one, ev.Record)]
        assert (node.policy.round, node.held) == (3, said())


def test_what_does_not_count_is_not_kept_where_statements_take_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, many = Node(classes_max=2), said(1.0, "ant", "bee", "cow")
    node.round(1, b=many, c=said())
    assert node.held == many
    monkeypatch.setattr(statements, "BYTES_MAX", 40)
    node.round(2, b=many, c=said())
    assert node.held.classes == ("ant", "bee")


def test_packed_statements_come_back() -> None:
    held = {"b": said(1.0, "bee", "cow"), "a/x": said(2.0), "": Tensors({"rows": np.zeros((0, 3))})}
    assert unpack(pack(held)) == held
    assert pack(held).classes == ("ant", "bee", "cow")
    assert unpack(Tensors({"rows": np.zeros((0, 3)), "own": [1.0]})) == {}
