"""Partial optimal transport between patches and prompts, with entropy, in the log domain.

For similarities S [M, N] of M patches and N prompts, a = 1 / M and b = mass / N:

    T = argmin <T, 1 - S> + epsilon sum T (log T - 1)    where T 1 <= a, T^T 1 = b

by Sinkhorn's scaling (Chizat et al., Mathematics of Computation 2018; FedOTP's code):

    K = exp(-(1 - S) / epsilon);  u <- min(1, a / K v);  v <- b / K^T u;  T = diag(u) K diag(v)

u and v are kept as logarithms: with a small epsilon, K would be 0 in float32. Each plan stops by
itself, so the plan of an image does not depend on the rest of its batch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


@torch.no_grad()
def transport(
    similarity: Tensor, mass: float, epsilon: float, threshold: float, steps: int
) -> Tensor:
    """Return the plans [..., M, N] of similarities [..., M, N]; a plan's numbers add up to `mass`.

    A plan stops when log v has changed by less than `threshold` in its mean, or after `steps`.
    """
    patches, prompts = similarity.shape[-2:]
    kernel = (similarity - 1.0) / epsilon
    row, column = -math.log(patches), math.log(mass / prompts)
    v = kernel.new_zeros((*kernel.shape[:-2], prompts))
    u = kernel.new_zeros(kernel.shape[:-1])
    going = torch.ones(kernel.shape[:-2], dtype=torch.bool, device=kernel.device)
    for _ in range(steps):
        fresh_u = (row - (kernel + v[..., None, :]).logsumexp(dim=-1)).clamp(max=0.0)
        fresh_v = column - (kernel + fresh_u[..., None]).logsumexp(dim=-2)
        moved = (fresh_v - v).abs().mean(dim=-1)
        u = torch.where(going[..., None], fresh_u, u)
        v = torch.where(going[..., None], fresh_v, v)
        going = going & (moved >= threshold)
        if not going.any():
            break
    return (u[..., None] + kernel + v[..., None, :]).exp()
