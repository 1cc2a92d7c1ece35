"""A job of training notes which arrays moved, and carries private ones on."""

from __future__ import annotations

import torch
from torch import Tensor

from fednode.core.types import PRIVATE
from fednode.learn.objective import Batch, Plain
from fednode.learn.training import Training


def test_it_notes_what_moved_and_carries_private_arrays() -> None:
    prompts: dict[str, Tensor] = {
        name: torch.ones(2, requires_grad=True) for name in ("moved", "own", "still")
    }
    tuning = Plain(lambda _: (prompts["moved"] * prompts["own"]).sum())
    descent = torch.optim.SGD(list(prompts.values()), lr=0.5)
    training = Training(prompts, frozenset({"own"}), tuning, descent)
    assert [float(loss) for loss in training.step(Batch())] == [2.0]
    assert training.changed == {"moved", "own"}
    assert training.carry()[PRIVATE + "own"].tolist() == [0.5, 0.5]
    assert prompts["still"].tolist() == [1.0, 1.0]
