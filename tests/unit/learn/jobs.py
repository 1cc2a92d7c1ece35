"""Hand a batch to an objective as the learner would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednode.core.types import EMPTY, Job, Tensors
from fednode.learn.objective import Batch, Given, Objective

Named = Mapping[str, Tensor]


def leaves(tensors: Tensors, gradient: bool = False) -> dict[str, Tensor]:
    return {
        name: torch.from_numpy(np.array(one)).requires_grad_(gradient)
        for name, one in tensors.items()
    }


def job(stage: str = "prompts", **set_: Any) -> Job:
    return Job(**{"round": 1, "stage": stage, "tensors": EMPTY, "seed": 1, "rounds": 10, **set_})


def given(
    prompts: Named,
    classes: tuple[str, ...],
    of: Job | None = None,
    reference: Named | None = None,
    carry: Named | None = None,
) -> Given:
    return Given(of or job(), prompts, reference or {}, carry or {}, classes)


def batch(labels: Tensor, **images: Any) -> Batch:
    return Batch(labels=labels, index=torch.arange(len(labels)), **images)


def loss(
    one: Objective, prompts: Named, features: Tensor, labels: Tensor, classes: tuple[str, ...]
) -> Tensor:
    """Return the loss of an objective that works on features, at its first step."""
    return one.begin(given(prompts, classes)).loss(batch(labels, features=features))


def logits(one: Objective, prompts: Named, features: Tensor, classes: tuple[str, ...]) -> Tensor:
    return one.classifier(prompts, classes)(Batch(features=features))
