"""Losses and gradients of the policies' objectives against open_clip's own forward pass.

reference.py calls open_clip's modules as the papers' code does, every text at full length; its
losses are written apart from the objectives.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fednode import registry
from fednode.clip.model import FrozenClip
from fednode.core.types import Tensors
from fednode.learn.coop import CONTEXT, CoOp
from fednode.policies.plan import PlanConfig, split
from tests.unit.learn.jobs import job, leaves
from tests.unit.policies.reference import LOSSES, Plain
from tests.unit.policies.steps import config_of
from tests.unit.policies.tiny import CLASSES, drawn, loss_of, tuning, wide


def arrays_of(name: str, stage: str, one: Any) -> tuple[Tensors, Tensors]:
    """Return the arrays that a node trains, and those of others."""
    every = drawn(one.initial(1), 7)
    if name == "feddpt":
        mine = one.config.trained("x")
        others = {key: array for key, array in every.items() if key not in mine}
        return Tensors({key: every[key] for key in mine}), Tensors(others)
    if name == "zerodfl":
        return every, Tensors()
    prompts, aggregators = split(every)
    if stage == "prompts":
        return prompts, drawn(prompts, 8)
    local = {
        f"{at:03d}/{key}": array for at in range(3) for key, array in drawn(prompts, at).items()
    }
    return aggregators, Tensors(local)


@pytest.mark.parametrize("method", LOSSES)
def test_loss_and_gradients(model: FrozenClip, method: str) -> None:
    name, _, stage = method.partition(" ")
    config = PlanConfig(description="name") if name == "plan" else config_of(name)
    one = registry.prompt_module(name)(model, tuning(), config)
    own, others = arrays_of(name, stage, one)
    ours, theirs = leaves(own, gradient=True), leaves(own, gradient=True)
    found = loss_of(one, ours, job(stage or "prompts"), leaves(others))
    wanted = LOSSES[method](Plain(model), theirs, leaves(others))
    assert float(found.detach()) == pytest.approx(float(wanted.detach()), rel=1e-5, abs=1e-6)
    torch.autograd.backward(found + wanted)
    for key, leaf in theirs.items():
        mine = ours[key].grad
        assert mine is not None
        assert leaf.grad is not None
        most = float(leaf.grad.abs().max())
        assert torch.allclose(mine, leaf.grad, atol=1e-5 + 1e-3 * most)
        assert most > 0


def test_knowledge_weight_adds_the_distance_to_the_hand_written_text(model: FrozenClip) -> None:
    plain, pulled = (CoOp(model, tuning(knowledge_weight=weight)) for weight in (0.0, 8.0))
    prompts = leaves(plain.initial(3))
    written = wide(plain.handwritten(CLASSES))
    distance = 8.0 * (1.0 - (written * wide(Plain(model).texts(prompts[CONTEXT]))).sum(axis=1))
    added = loss_of(pulled, prompts) - loss_of(plain, prompts)
    assert float(added) == pytest.approx(distance.mean(), rel=1e-4)
