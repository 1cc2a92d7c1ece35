"""Hand a batch to an objective as the learner would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednode.core.types import EMPTY, Job, Tensors
from fednode.learn.local_tuning import take_step
from fednode.learn.prompt_module import Batch, JobInputs, PromptModule

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
) -> JobInputs:
    return JobInputs(of or job(), prompts, reference or {}, carry or {}, classes)


def started(module: PromptModule, inputs: JobInputs) -> JobInputs:
    """Let a module begin a job."""
    inputs.state = module.start(inputs)
    return inputs


class Training:
    """A job under way, step by step."""

    def __init__(
        self, module: PromptModule, inputs: JobInputs, descent: torch.optim.Optimizer
    ) -> None:
        self.module, self.inputs, self.descent = module, started(module, inputs), descent
        self.prompts = inputs.params

    def step(self, batch: Batch) -> list[Tensor]:
        return take_step(batch, self.module, self.inputs, self.descent)


def first_loss(module: PromptModule, inputs: JobInputs, of: Batch) -> Tensor:
    """Return the sum of a batch's losses at the first step of a job."""
    return torch.stack([*module.losses(of, started(module, inputs))]).sum()
