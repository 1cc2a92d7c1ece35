"""What a policy may know of a node, and what the node tunes with, by its plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.app.network import join
from fednode.app.parts import context_of, learning_of
from fednode.app.plan import learner_of, private
from tests.unit.app.founders import founded, identity_of


def test_a_context_holds_what_the_plan_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = founded(tmp_path, monkeypatch)
    context = context_of(plan, join(plan), learner_of(plan.settings, "a"), "word")
    assert (context.name, context.mesh, context.process) == ("a", "ward", "word")
    assert (context.rounds.max, context.seed, context.peers) == (3, 1, ())
    assert context.id == identity_of(plan).id
    assert context.introduced


def test_what_a_node_tunes_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = founded(tmp_path, monkeypatch)
    learner = private(plan, learner_of(plan.settings, "a"))
    learning = learning_of(plan, learner)
    assert learning.learner is learner
    assert learning.dtype == plan.policy.wire_dtype
    assert learning.remember is not None
    plan.state.mkdir(exist_ok=True)
    learning.remember(("cat", "dog"))
    assert (plan.state / "classes.txt").read_text() == "cat\ndog\n"
