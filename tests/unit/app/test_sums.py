"""Class sums that a node may not send, or its mesh not keep: said before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fednode.app import sums
from fednode.app.plan import NodePlan
from fednode.core.types import Tensors
from fednode.learn.settings import PrivacySettings
from fednode.policies.gda import rows
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import Settings, chosen_of
from fednode.wire.tensors import LIMITS

WIDTH = 257


class Counted:
    """A learner with so many images of each class."""

    def __init__(self, *counts: int, share: str = "means", least: int = 5) -> None:
        self.classes = tuple(f"c{at:04}" for at in range(len(counts)))
        self.samples = sum(counts)
        enough = [at for at, count in enumerate(counts) if count >= least]
        self.told = tuple(self.classes[at] for at in enough), sum(counts[at] for at in enough)
        self._share = share

    def initial(self, seed: int) -> Tensors:
        moment = {"moment": np.zeros(WIDTH * (WIDTH - 1) // 2)} if self._share == "sums" else {}
        return Tensors({"rows": np.zeros((0, WIDTH)), **moment})


def plan(nodes: int = 2, share: str = "means", policy: str = "gda") -> NodePlan:
    entries = tuple(PeerEntry(f"n{at}", "") for at in range(nodes))
    options = {"share": share} if policy == "gda" else {}
    chosen = chosen_of({"name": policy, **options})
    return NodePlan("n0", Settings(policy=chosen), Peers("m", entries), Path())


def found(learner: Any, made: NodePlan) -> list[tuple[str, str]]:
    return list(sums.findings(made, learner))


def test_sums_of_too_few_images_are_a_fault() -> None:
    few = Counted(600, 423, 3, share="sums")
    ((level, said),) = found(few, plan(share="sums"))
    assert level == "fault"
    assert said.startswith("policy.share is 'sums', and this node would send sums over 1023 images")
    assert "fewer than 1024 (four times the 256 dimensions" in said
    assert "add images, or set policy.share to means" in said
    assert found(Counted(600, 424, share="sums"), plan(share="sums")) == []
    assert found(Counted(9, 9), plan()) == []


def test_a_node_that_would_send_nothing_is_warned() -> None:
    ((level, said),) = found(Counted(3, 2), plan())
    assert level == "warning"
    assert said.startswith("None of this node's 2 classes has privacy.least_images (5) training")
    assert "raise data.shots, or lower privacy.least_images" in said
    assert found(Counted(3, 5), plan()) == []
    assert found(Counted(), plan()) == []
    assert found(Counted(3, 2), plan(policy="promptfl")) == []
    assert PrivacySettings().least_images == 5


@pytest.mark.parametrize(("share", "nodes"), [("means", 60), ("sums", 54)])
def test_sums_that_no_message_hands_over_are_a_fault(share: str, nodes: int) -> None:
    """With a thousand classes and 256 dimensions."""
    learner = Counted(*[9] * 1000, share=share)
    assert [level for level, _ in found(learner, plan(nodes, share))] == ["warning"]
    ((level, said),) = found(learner, plan(nodes + 1, share))
    assert level == "fault"
    assert f"peers.yaml lists {nodes + 1} nodes, and the sums of" in said
    assert "with 1000 classes take 6" in said
    assert "MiB; a late node takes over at most 60 MiB" in said
    own = (sums.STATE_BYTES, sums.ENOUGH, sums.CLASSES_MAX)
    assert own == (rows.STATE_BYTES, rows.ENOUGH, rows.CLASSES_MAX) == (60 << 20, 4, LIMITS.classes)


def test_more_classes_than_a_message_names_are_a_fault_and_more_than_count_a_warning() -> None:
    ((level, said),) = found(Counted(*[9] * 4097), plan())
    assert level == "fault"
    assert "This node has 4,097 classes, and a message names at most 4,096" in said
    assert "name the classes to use in data.classes" in said
    ((level, said),) = found(Counted(*[9] * 257), plan())
    assert level == "warning"
    assert "This node has 257 classes, and policy.classes_max is 256" in said
    assert found(Counted(*[9] * 256), plan()) == []
