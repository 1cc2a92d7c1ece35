"""Rounds that carry their optimizer equal one unbroken run of torch's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fednode.core.types import EMPTY, Tensors
from fednode.learn import optimizer
from fednode.learn.settings import TuningSettings


@pytest.mark.parametrize("horizon", [0, 7])
def test_the_cosine_equals_torchs_scheduler(horizon: int) -> None:
    settings = TuningSettings(lr=0.3, horizon=horizon)
    rounds = horizon or 5
    leaf = torch.zeros(1, requires_grad=True)
    theirs = torch.optim.SGD([leaf], lr=0.3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(theirs, T_max=rounds)
    for number in range(1, rounds + 1):
        ours = optimizer.learning_rate(settings, number, 5)
        assert ours == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-9)
        theirs.step()
        scheduler.step()
    assert optimizer.learning_rate(settings, rounds + 3, 5) == pytest.approx(ours)
    assert ours > 0
    for schedule, end in (("constant", 5), ("cosine", 0)):  # 0: a run without an end
        keeps = TuningSettings(lr=0.3, schedule=schedule)  # type: ignore[arg-type]
        assert {optimizer.learning_rate(keeps, number, end) for number in (1, 4, 90)} == {0.3}


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_two_rounds_equal_one_run_of_two_steps(kind: Any) -> None:
    settings = TuningSettings(optimizer=kind, lr=0.1, weight_decay=0.01)
    start = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    whole = torch.tensor(start, requires_grad=True)
    unbroken: torch.optim.Optimizer = (
        torch.optim.SGD([whole], lr=0.1, momentum=0.9, weight_decay=0.01)
        if kind == "sgd"
        else torch.optim.AdamW([whole], lr=0.1, weight_decay=0.01)
    )
    tensors, carry = Tensors({"context": start}), EMPTY
    for _ in range(3):
        _descend(unbroken, whole)
        leaf = torch.tensor(tensors["context"], requires_grad=True)
        mine = optimizer.build(settings, {"context": leaf}, 0.1, carry)
        _descend(mine, leaf)
        tensors = Tensors({"context": leaf.detach().numpy()})
        carry = optimizer.carried(mine, {"context": leaf})
    assert np.array_equal(tensors["context"], whole.detach().numpy())
    assert carry.nbytes > 0
    made = optimizer.build(settings, {"context": leaf}, 0.1, EMPTY)
    assert not made.state[leaf], "a round without carry starts afresh"
    assert optimizer.carried(made, {"context": leaf}) == EMPTY


def _descend(descent: torch.optim.Optimizer, leaf: torch.Tensor) -> None:
    descent.zero_grad()
    torch.autograd.backward((leaf**4).sum())
    descent.step()
