"""One job of training: its arrays under an optimizer, and what it carries on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fednode.core.types import PRIVATE, Array, Tensors
from fednode.learn import optimizer
from fednode.learn.objective import Batch, InTurns, Leaves, Partial, Tuning


def array_of(leaf: Tensor) -> Array:
    """Return a copy of a tensor as an array."""
    copied: Array = leaf.detach().cpu().numpy()
    return copied


def leaves(tensors: Mapping[str, Array], device: torch.device) -> Leaves:
    """Return copies of arrays as float32 tensors on a device, with the classes of their rows."""
    copies = {name: torch.tensor(array, device=device) for name, array in tensors.items()}
    return Leaves(copies, tensors.classes if isinstance(tensors, Tensors) else ())


class Training:
    """A job and its optimizer."""

    def __init__(
        self,
        prompts: Mapping[str, Tensor],
        private: frozenset[str],
        tuning: Tuning,
        descent: torch.optim.Optimizer,
    ) -> None:
        self.prompts = prompts
        self._changed: set[str] = set()
        self._taken: dict[str, Tensor] = {}
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
            moved = {name for name, leaf in self.prompts.items() if leaf.grad is not None}
            taken = tuning.taken if isinstance(tuning, Partial) else {}
            unsure = {name: taken[name] for name in sorted(moved & set(taken))}
            self._changed |= moved - set(unsure)
            self._step(unsure)
            losses.append(loss.detach())
        tuning.stepped()
        return losses

    @property
    def changed(self) -> set[str]:
        """Return the names of prompts that had a part in some loss; waits for the device."""
        return self._changed | {name for name, one in self._taken.items() if bool(one)}

    @torch.no_grad()
    def _step(self, unsure: Mapping[str, Tensor]) -> None:
        """Take a step; put back prompts, and their optimizer's state, that had no part in the loss.

        unsure: a truth value for each of these prompts, which is not read here.
        """
        state = self._descent.state
        before = {
            name: (leaf.clone(), {key: value.clone() for key, value in _numbers(state[leaf])})
            for name, leaf in ((name, self.prompts[name]) for name in unsure)
        }
        self._descent.step()
        for name, had in unsure.items():
            leaf, (old, known) = self.prompts[name], before[name]
            leaf.copy_(torch.where(had, leaf, old))
            for key, value in _numbers(state[leaf]):
                # Without a step there is no state yet; optimizers begin it with zeros.
                value.copy_(torch.where(had, value, known.get(key, torch.zeros_like(value))))
            self._taken[name] = self._taken.get(name, torch.zeros_like(had)) | had

    def carry(self) -> Tensors:
        """Return optimizer state, private prompts and the objective's carry."""
        own = {PRIVATE + name: array_of(self.prompts[name]) for name in self._private}
        more = {name: array_of(one) for name, one in self._tuning.carry().items()}
        return Tensors({**optimizer.carried(self._descent, self.prompts), **own, **more})


def _numbers(state: Mapping[str, Any]) -> list[tuple[str, Tensor]]:
    """Return the tensors of an optimizer's state for one prompt."""
    return [(key, value) for key, value in state.items() if isinstance(value, Tensor)]
