"""A job of training notes which arrays moved, and carries private ones on."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor

from fednode.core.types import EMPTY, PRIVATE
from fednode.learn import optimizer
from fednode.learn.objective import Batch, Plain
from fednode.learn.settings import TuningSettings
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


class Asked:
    """A tuning with two arrays of which a batch asks for some; the others may not move."""

    def __init__(self, prompts: dict[str, Tensor], masked: bool) -> None:
        self.prompts, self.masked = prompts, masked
        self.taken: dict[str, Tensor] = {}

    def loss(self, batch: Batch) -> Tensor:
        asked = set(batch.numbers)
        there = {name: torch.tensor(at in asked) for at, name in enumerate(self.prompts)}
        if self.masked:
            self.taken = there
        used = [one for name, one in self.prompts.items() if self.masked or there[name]]
        shares = [float(there[name]) for name in self.prompts if self.masked or there[name]]
        return torch.stack(
            [share * (one**2).sum() for share, one in zip(shares, used, strict=True)]
        ).sum()

    def stepped(self) -> None: ...

    def carry(self) -> dict[str, Tensor]:
        return {}


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("batches", [[(0,), (0, 1), (0,), (1,)], [(0,), (0,)]])
def test_what_a_batch_does_not_ask_for_stays_without_reading_it(
    kind: Literal["sgd", "adam", "adamw"], batches: list[tuple[int, ...]]
) -> None:
    """The same bits as without a gradient: no momentum, no decay, no count of steps."""
    settings = TuningSettings(optimizer=kind, lr=0.1, weight_decay=0.3)
    ends = []
    for masked in (True, False):
        prompts = {
            "first": torch.tensor([1.0, -2.0], requires_grad=True),
            "second": torch.tensor([3.0, 0.5], requires_grad=True),
        }
        descent = optimizer.build(settings, prompts, 0.1, EMPTY)
        training = Training(prompts, frozenset(), Asked(prompts, masked), descent)
        for numbers in batches:
            training.step(Batch(numbers=numbers))
        held = [one.tolist() for one in prompts.values()]
        ends.append((held, training.changed, training.carry()))
    assert ends[0][:2] == ends[1][:2]
    assert ends[0][1] == ({"first", "second"} if (1,) in batches else {"first"})
    for name, value in ends[1][2].items():
        assert (value == ends[0][2][name]).all()
