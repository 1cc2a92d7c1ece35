"""Every policy's step on fake CUDA tensors: no tensor on another device, and no wait for the GPU.

torch's fake tensors compute shapes and devices alone. They raise an error where a number of a
tensor would be read, because there the host would wait for the device, and where tensors of two
devices meet. The backward pass needs a real device; tests marked `gpu` cover it.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fednode import registry
from fednode.clip import backbone
from fednode.clip.text import TextTower
from fednode.clip.vision import VisionTower
from fednode.learn.objective import Batch, Given, InTurns
from tests.unit.clip import tiny
from tests.unit.learn.jobs import job
from tests.unit.policies.tiny import CLASSES, frozen, tuning

LABELS = (0, 2, 1, 1, 0)
WAITS = {"diprompt"}
"""DiPrompt asks once a step which domains Q finds in a batch: only their prompts are trained."""
TRAINED = sorted(set(registry.names()) - {"gda"})
"""gda computes sums in one pass over the features and has no step."""


@pytest.fixture(scope="module")
def real() -> backbone.Backbone:
    return frozen()


def on_cuda(real: backbone.Backbone) -> backbone.Backbone:
    """Return the model on a fake CUDA device; call it inside a FakeTensorMode."""
    with torch.device("cuda"):
        model = tiny.clip(3)
    text = TextTower(model, real.tokenizer, "tiny")
    device = torch.device("cuda:0")
    return replace(real, model=model, text=text, vision=VisionTower(model, "tiny"), device=device)


def step(real: backbone.Backbone, name: str, spoil: Any = None) -> None:
    """Run the losses of each stage and the classifier of a policy; spoil: plants a fault."""
    kind = registry.policy(name)
    known = inspect.signature(kind.config_type).parameters
    config = kind.config_type(**({"domains": ("x", "y")} if "domains" in known else {}))
    made = registry.objective(name)(real, tuning(), config)
    arrays = {**made.initial(0), **made.private(0)}
    index = torch.arange(len(LABELS))
    stages = getattr(getattr(kind, "method", None), "stages", ("prompts",))
    with FakeTensorMode(allow_non_fake_inputs=True):
        cuda = torch.device("cuda:0")
        one = registry.objective(name)(on_cuda(real), tuning(), config)
        prompts = {
            key: torch.empty(np.shape(value), device=cuda).requires_grad_()
            for key, value in arrays.items()
        }
        shown: dict[str, Any] = {"features": torch.randn(5, tiny.EMBED, device=cuda)}
        if one.looks:
            shown = {"pixels": torch.randn(5, 3, 32, 32, device=cuda)}
        if one.constant is not None:
            shown["constants"] = torch.rand(5, *one.constant.shape, device=cuda)
        labels = torch.empty(5, dtype=torch.long, device=cuda)
        norms = torch.ones(5, device=cuda)
        numbers: Any = {"numbers": LABELS, "places": tuple(range(5))}
        batch = Batch(labels=labels, index=index, norms=norms, **numbers, **shown)
        for stage in stages:
            local = stage == "aggregators"  # of PLAN, whose reference is each node's prompts
            reference = {
                f"a/{key}" if local else key: value.detach() for key, value in prompts.items()
            }
            begun = one.begin(Given(job(stage, domain="x"), prompts, reference, {}, CLASSES))
            losses = begun.losses(batch) if isinstance(begun, InTurns) else [begun.loss(batch)]
            for loss in losses:
                assert loss.device == cuda
                if spoil is not None:
                    spoil(loss)
            begun.stepped()
            assert all(array.device == cuda for array in begun.carry().values())
        found = one.classifier({k: v.detach() for k, v in prompts.items()}, CLASSES)(batch)
        assert found.device == cuda
        assert found.shape == (5, len(CLASSES))


@pytest.mark.parametrize("name", TRAINED)
def test_a_step_waits_for_nothing_and_stays_on_its_device(name: str, real: Any) -> None:
    if name in WAITS:
        with pytest.raises(Exception, match="_local_scalar_dense"):
            step(real, name)
        return
    step(real, name)


@pytest.mark.parametrize(
    "fault",
    [
        lambda loss: loss.item(),
        lambda loss: loss[None].tolist(),
        float,
        lambda loss: loss + torch.ones(2),
    ],
    ids=["item", "tolist", "float", "another device"],
)
def test_planted_faults_are_found(fault: Any, real: Any) -> None:
    with pytest.raises(Exception, match=r"[Dd]evice|DataDependent|_local_scalar_dense"):
        step(real, "promptfl", fault)
