"""Optimize matrices by Muon (momentum, orthogonalized) and the rest by AdamW.

Muon: Jordan et al., 2024, "Muon: An optimizer for hidden layers in neural networks".
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

# Coefficients of the quintic Newton-Schulz iteration of the Muon reference.
QUINTIC = (3.4445, -4.7750, 2.0315)


def orthogonalize(update: torch.Tensor, steps: int) -> torch.Tensor:
    """Return the update [..., m, n] with its singular values moved towards one."""
    a, b, c = QUINTIC
    x = update.to(torch.bfloat16)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True).to(x.dtype) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    out: torch.Tensor = (x.mT if tall else x).to(update.dtype)
    return out


class Muon(torch.optim.Optimizer):
    """Step a list of matrices; a fused query-key-value matrix counts as three."""

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
        steps: int = 5,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "steps": steps}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Apply one update; matrices of equal shape are orthogonalized in one batch."""
        for group in self.param_groups:
            shapes: dict[tuple[int, ...], list[nn.Parameter]] = {}
            for param in group["params"]:
                if param.grad is not None:
                    shapes.setdefault(tuple(param.shape), []).append(param)
            for params in shapes.values():
                self._step_alike(params, group)

    def _step_alike(self, params: list[nn.Parameter], group: dict[str, float]) -> None:
        momentum, rate = group["momentum"], group["lr"]
        updates = []
        for param in params:
            grad = param.grad
            assert grad is not None
            buffer = self.state[param].setdefault("momentum", torch.zeros_like(param))
            buffer.lerp_(grad, 1 - momentum)
            updates.append(grad.lerp(buffer, momentum))
        stack = torch.stack(updates)
        count, rows, columns = stack.shape
        parts = 3 if rows == 3 * columns else 1
        flat = orthogonalize(stack.view(count * parts, rows // parts, columns), int(group["steps"]))
        scale = max(1.0, rows / parts / columns) ** 0.5
        for param, update in zip(params, flat.view(count, rows, columns), strict=True):
            param.mul_(1 - rate * group["weight_decay"])
            param.add_(update, alpha=-rate * scale)
