"""What a seed draws about settings documents, and how operators decide."""

from __future__ import annotations

import random

import pytest

from fednode.core.types import Document
from fednode.lab.simulate.check import Violation
from fednode.lab.simulate.documents import (
    LIE,
    DocumentSettings,
    Proposals,
    draw_documents,
    require_settled,
)
from tests.simulation.documents import Amended

NAMES = ("a", "b", "c", "d")


def test_rival_proposals_and_lying_members_are_drawn() -> None:
    settings = DocumentSettings(proposals=3, liars=2)
    drawn = [
        draw_documents(settings, NAMES, 2, 10, 5.0, random.Random(seed)) for seed in range(200)
    ]
    numbers = {tuple(one.number for one in documents) for documents, _ in drawn}
    assert {(), (1,), (1, 1), (1, 2), (1, 1, 2), (1, 2, 3)} <= numbers
    assert {len(liars) for _, liars in drawn} == {0, 1, 2}
    assert all(lie == LIE for _, liars in drawn for lie in liars.values())
    assert all(0 <= one.at <= 5 and 10 <= one.rounds <= 15 for all_, _ in drawn for one in all_)
    assert {one.mesh for all_, _ in drawn for one in all_} == {None, 0, 1}


def test_an_operator_decides_the_same_whenever_it_is_asked() -> None:
    made = Amended()
    proposals = Proposals(made.world, made.setup, DocumentSettings(refuse=0.3, ignore=0.3), 1)
    answers = [proposals.answer("a", f"{number:032x}") for number in range(300)]
    assert answers == [proposals.answer("a", f"{number:032x}") for number in range(300)]
    assert set(answers) == {True, False, None}


def test_a_node_that_does_not_follow_what_it_accepted_is_named() -> None:
    made = Amended()
    proposals = Proposals(made.world, made.setup, DocumentSettings(), 1)
    document = Document(1, "5" * 32, 3, b"one")
    require_settled(proposals, NAMES)
    made.world.hosts["b"].desk.held[document.digest] = document
    with pytest.raises(Violation, match="a does not know settings 1"):
        require_settled(proposals, NAMES)
    for name in NAMES:
        made.world.hosts[name].desk.held[document.digest] = document
    require_settled(proposals, NAMES)
    made.world.hosts["c"].desk.decided[document.digest] = True
    with pytest.raises(Violation, match="c runs under settings 0, and took 1"):
        require_settled(proposals, NAMES)
    require_settled(None, NAMES)
