"""Class sums that a node cannot send: said before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fednode.app.plan import NodePlan, sums_fault, sums_warning
from fednode.learn.settings import PrivacySettings
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import Settings, chosen_of


class Counted:
    """A learner with so many images of each class."""

    def __init__(self, *counts: int, least: int = 5) -> None:
        self.classes = tuple(f"c{at:04}" for at in range(len(counts)))
        self.samples = sum(counts)
        enough = [at for at, count in enumerate(counts) if count >= least]
        self.announced = tuple(self.classes[at] for at in enough), sum(counts[at] for at in enough)


def plan(policy: str = "gda") -> NodePlan:
    entries = tuple(PeerEntry(f"n{at}", "") for at in range(2))
    chosen = chosen_of({"name": policy})
    return NodePlan("n0", Settings(policy=chosen), Peers("m", entries), Path())


def found(learner: Any, made: NodePlan) -> list[tuple[str, str]]:
    said = {"fault": sums_fault(made, learner), "warning": sums_warning(made, learner)}
    return [(level, text) for level, text in said.items() if text][:1]


def test_a_node_that_would_send_nothing_is_warned() -> None:
    ((level, said),) = found(Counted(3, 2), plan())
    assert level == "warning"
    assert said.startswith("None of this node's 2 classes has privacy.least_images (5) training")
    assert "raise data.shots, or lower privacy.least_images" in said
    assert found(Counted(3, 5), plan()) == []
    assert found(Counted(), plan()) == []
    assert found(Counted(3, 2), plan(policy="promptfl")) == []
    assert PrivacySettings().least_images == 5


def test_more_classes_than_a_message_names_are_a_fault_and_more_than_count_a_warning() -> None:
    ((level, said),) = found(Counted(*[9] * 4097), plan())
    assert level == "fault"
    assert "This node has 4,097 classes, and a message names at most 4,096" in said
    assert "name the classes to use in data.classes" in said
    ((level, said),) = found(Counted(*[9] * 257), plan())
    assert level == "warning"
    assert "This node has 257 classes, and policy.classes_max is 256" in said
    assert found(Counted(*[9] * 256), plan()) == []
