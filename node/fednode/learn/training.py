"""One job of training: its arrays under an optimizer, and what it carries on."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fednode.core.types import PRIVATE, Array, Tensors
from fednode.learn import optimizer
from fednode.learn.objective import Batch, InTurns, Tuning


def array_of(leaf: Tensor) -> Array:
    """Return a copy of a tensor as an array."""
    copied: Array = leaf.detach().cpu().numpy()
    return copied


class Training:
    """A job and its optimizer. changed: names of prompts that had a gradient in some step."""

    def __init__(
        self,
        prompts: Mapping[str, Tensor],
        private: frozenset[str],
        tuning: Tuning,
        descent: torch.optim.Optimizer,
    ) -> None:
        self.prompts = prompts
        self.changed: set[str] = set()
        self._private = private
        self._tuning = tuning
        self._descent = descent

    def step(self, batch: Batch) -> list[Tensor]:
        """Take a step for each loss of a batch; return the losses, which nobody has waited for."""
        tuning, losses = self._tuning, list[Tensor]()
        for loss in tuning.losses(batch) if isinstance(tuning, InTurns) else [tuning.loss(batch)]:
            self._descent.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            # Optimizers skip parameters without a gradient: no momentum and no decay either.
            self.changed |= {name for name, leaf in self.prompts.items() if leaf.grad is not None}
            self._descent.step()
            losses.append(loss.detach())
        tuning.stepped()
        return losses

    def carry(self) -> Tensors:
        """Return optimizer state, private prompts and the objective's carry."""
        own = {PRIVATE + name: array_of(self.prompts[name]) for name in self._private}
        more = {name: array_of(one) for name, one in self._tuning.carry().items()}
        return Tensors({**optimizer.carried(self._descent, self.prompts), **own, **more})
