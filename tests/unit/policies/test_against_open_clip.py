"""Losses and gradients of the policies' objectives against open_clip's own forward pass.

reference.py calls open_clip's modules as the papers' code does, every text at full length; its
losses are written apart from the objectives.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fednode.clip.model import FrozenClip
from fednode.learn.coop import CoOp
from fednode.learn.prompt_module import JobInputs as Given
from fednode.learn.prompt_module import PromptModule as Objective
from fednode.policies import plan as aggregator
from fednode.policies.feddpt import FedDPTConfig, FedDPTPrompts
from fednode.policies.plan import PlanConfig
from fednode.policies.plan import PlanPrompts as Plan
from tests.unit.learn.jobs import batch, first_loss, given, job
from tests.unit.policies.reference import CLIENTS, Inputs, Method, inputs, loss
from tests.unit.policies.tiny import tuning

DOMAINS = tuple(f"domain-{at}" for at in range(CLIENTS))
Leaves = dict[str, Tensor]


def zerodfl(model: FrozenClip, made: Inputs, start: Leaves) -> tuple[Objective, Given]:
    return CoOp(model, tuning()), given(start, made.names)


def feddpt(model: FrozenClip, made: Inputs, start: Leaves) -> tuple[Objective, Given]:
    own = {"text.domain-0": start["context"]}
    own |= {f"visual.{name}": start["visual"][0, at] for at, name in enumerate(DOMAINS)}
    others = dict(zip([f"text.{n}" for n in DOMAINS[1:]], made.constants["context"], strict=True))
    objective = FedDPTPrompts(model, tuning(), FedDPTConfig(domains=DOMAINS))
    return objective, given(own, made.names, reference=others)


def plan_a(model: FrozenClip, made: Inputs, start: Leaves) -> tuple[Objective, Given]:
    objective = Plan(model, tuning(), PlanConfig(description="name"))
    return objective, given(start, made.names, job("prompts"), made.constants)


def plan_b(model: FrozenClip, made: Inputs, start: Leaves) -> tuple[Objective, Given]:
    """Biases are 0: the reference's aggregator has none."""
    weights = {aggregator.AGGREGATOR + name: one for name, one in start.items()}
    for name in ("text", "visual"):
        for part in ("query", "value"):
            key = f"{aggregator.AGGREGATOR}{name}.{part}"
            weights[f"{key}.down_bias"] = weights[f"{key}.down"].new_zeros(
                weights[f"{key}.down"].shape[::2]
            )
            weights[f"{key}.up_bias"] = weights[f"{key}.up"].new_zeros(
                weights[f"{key}.up"].shape[::2]
            )
    local = {
        f"{at:03d}/{name}": one
        for name, stack in made.constants.items()
        for at, one in enumerate(stack)
    }
    objective = Plan(model, tuning(), PlanConfig(description="name"))
    return objective, given(weights, made.names, job("aggregators"), local)


@pytest.mark.parametrize(
    ("method", "make"),
    [("zerodfl", zerodfl), ("feddpt", feddpt), ("plan-a", plan_a), ("plan-b", plan_b)],
)
def test_loss_and_gradients(model: FrozenClip, method: Method, make: object) -> None:
    made = inputs(model, method)
    found = []
    for ours in (False, True):
        # Ten times the reference's start: so near to nothing, all domains look alike.
        start = {name: (10 * one).requires_grad_() for name, one in made.start.items()}
        if ours:
            objective, of = make(model, made, start)  # type: ignore[operator]
            images = (
                {"images": made.pixels}
                if objective.uses_image_encoder
                else {"image_features": made.features}
            )
            value = first_loss(objective, of, batch(made.labels, **images))
        else:
            value = loss(model, method, made, start)
        torch.autograd.backward(value)
        found.append((float(value.detach()), {name: one.grad for name, one in start.items()}))
    (theirs, wanted), (mine, gradients) = found
    assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-6)
    for name, one in wanted.items():
        mine_too = gradients[name]
        assert one is not None
        assert mine_too is not None
        assert torch.allclose(mine_too, one, atol=1e-5 + 1e-3 * float(one.abs().max()))
        assert float(one.abs().max()) > 0
