"""Every policy's steps with recorded passes are its steps without, but for rounding.

A pass with several results adds their gradients in another order.
"""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch import Tensor

from fednode import registry
from fednode.clip import backbone
from fednode.clip.captured import Captures
from fednode.core.types import EMPTY
from fednode.learn import optimizer
from fednode.learn.objective import Batch, Given
from fednode.learn.training import Training
from tests.unit.clip.test_captured import recorder
from tests.unit.learn.jobs import job
from tests.unit.policies.test_devices import TRAINED, near, on
from tests.unit.policies.tiny import CLASSES, LABELS, features, pixels, tuning

STEPS: Final = 16
BOUND: Final = {"float32": 1e-5, "bfloat16": 0.02}
"""Largest difference, as a share of the largest number."""
WITHOUT_TOWERS: Final = {"fedclip"}
"""Policies that tune nothing in front of a tower."""


def batches(frozen: backbone.Backbone, objective: Any) -> list[Batch]:
    """Return batches of five and of two images, as an epoch's last batch may have fewer."""
    found = []
    for count in (5, 2):
        shown: dict[str, Any] = {"pixels": pixels(count).to(frozen.device)}
        if not objective.looks:
            norms = torch.ones(count, device=frozen.device)
            shown = {"features": features(count).to(frozen.device), "norms": norms}
        if objective.constant is not None:
            drawn = torch.Generator().manual_seed(6)
            constants = torch.rand(count, *objective.constant.shape, generator=drawn)
            shown["constants"] = constants.to(frozen.device)
        labels = LABELS[:count]
        places: Any = {"numbers": tuple(labels.tolist()), "places": tuple(range(count))}
        index = torch.arange(count)
        found.append(Batch(labels=labels.to(frozen.device), index=index, **places, **shown))
    return found


def trained(
    frozen: backbone.Backbone, name: str, captures: Captures | None
) -> list[dict[str, Tensor]]:
    """Return the prompts after STEPS steps of each stage of a policy."""
    policy = registry.policy(name)
    known = inspect.signature(policy.config_type).parameters
    options = {"domains": ("x", "y"), "teacher": "template"}
    config = policy.config_type(**{key: options[key] for key in options if key in known})
    objective = registry.objective(name)(frozen, tuning(), config)
    arrays = {**objective.initial(0), **objective.private(0)}
    found = []
    for stage in getattr(getattr(policy, "method", None), "stages", ("prompts",)):
        prompts = {
            key: torch.tensor(np.array(value), device=frozen.device).requires_grad_()
            for key, value in arrays.items()
        }
        local = stage == "aggregators"  # of PLAN, whose reference is each node's prompts
        reference = {f"a/{key}" if local else key: leaf.detach() for key, leaf in prompts.items()}
        begun = objective.begin(Given(job(stage, domain="x"), prompts, reference, {}, CLASSES))
        descent = optimizer.build(tuning(), prompts, 0.05, EMPTY)
        training = Training(prompts, frozenset(), begun, descent)
        shown = batches(frozen, objective)
        with captures or nullcontext():
            for at in range(STEPS):
                training.step(shown[at % 2])
        found.append({key: leaf.detach().cpu() for key, leaf in prompts.items()})
    return found


@pytest.mark.parametrize(
    ("device", "precision"),
    [
        ("cpu", "float32"),
        pytest.param("cpu", "bfloat16", marks=pytest.mark.slow),
        pytest.param("cuda", "float32", marks=pytest.mark.gpu),
        pytest.param("cuda", "bfloat16", marks=pytest.mark.gpu),
    ],
)
@pytest.mark.parametrize("name", TRAINED)
def test_recorded_steps_are_ordinary_steps(name: str, precision: Any, device: str) -> None:
    frozen = on(device, precision)
    wanted = trained(frozen, name, None)
    captures = Captures(recorder(device))
    found = trained(frozen, name, captures)
    assert (captures._count > 0) == (name not in WITHOUT_TOWERS)
    assert captures.notes == ()
    for ours, theirs in zip(found, wanted, strict=True):
        for key, value in theirs.items():
            assert near(ours[key], value, BOUND[precision]), key
