"""Optimizer and learning rate of one round, restored from the state that the last round carried."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fednode.core.types import Tensors
from fednode.learn.settings import TuningSettings


def learning_rate(settings: TuningSettings, round_number: int, rounds: int) -> float:
    """Return the learning rate of a round: constant or a cosine.

    The first round has the full rate; the cosine would reach 0 one round after the horizon.
    Rounds beyond the horizon keep the rate of its last round. Source: Loshchilov and Hutter, SGDR,
    ICLR 2017, equation 5 without restarts (torch's CosineAnnealingLR with T_max = horizon).
    """
    horizon = settings.horizon or rounds
    if settings.schedule == "constant" or not horizon:
        return settings.lr
    done = min(round_number - 1, horizon - 1)
    return 0.5 * settings.lr * (1.0 + math.cos(math.pi * done / horizon))


def build(
    settings: TuningSettings, prompts: Mapping[str, Tensor], rate: float, carry: Tensors
) -> torch.optim.Optimizer:
    """Return the optimizer over the prompts, with the state that `carry` holds for each prompt."""
    leaves = list(prompts.values())
    optimizer: torch.optim.Optimizer
    if settings.optimizer == "sgd":
        optimizer = torch.optim.SGD(
            leaves, lr=rate, momentum=settings.momentum, weight_decay=settings.weight_decay
        )
    else:
        kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
        # On a GPU the count of steps belongs there too: to read it, a step would wait for the GPU.
        there = any(leaf.is_cuda for leaf in leaves)
        optimizer = kind(
            leaves,
            lr=rate,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
            capturable=there,
        )
    for name, leaf in prompts.items():
        mine = {
            key.removeprefix(f"{name}/"): torch.from_numpy(np.array(value)).to(leaf.device)
            for key, value in carry.items()
            if key.startswith(f"{name}/")
        }
        if mine:
            optimizer.state[leaf] = mine
    return optimizer


def carried(optimizer: torch.optim.Optimizer, prompts: Mapping[str, Tensor]) -> Tensors:
    """Return the optimizer's state as arrays named "<prompt>/<quantity>"."""
    return Tensors(
        {
            f"{name}/{key}": value.detach().cpu().numpy()
            for name, leaf in prompts.items()
            for key, value in optimizer.state[leaf].items()
            if isinstance(value, Tensor)
        }
    )
