"""Merge what nodes contributed: sums in float64 and in the order given, so that all get equal bits.

Callers give contributions sorted by sender (node/core/rounds.py does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from node.core.types import Array, Tensors


def mean(arrays: Sequence[Array], weights: Sequence[float]) -> Array:
    """Return sum_i w_i a_i / sum_i w_i of arrays of one shape, in float32 (FedAvg).

    Raise ValueError for no arrays or weights that sum to nothing.
    """
    total = float(sum(weights))
    if not arrays or total <= 0.0:
        raise ValueError(f"{len(arrays)} arrays with weights that sum to {total:g} have no mean")
    summed = np.zeros(arrays[0].shape, dtype=np.float64)
    for array, weight in zip(arrays, weights, strict=True):
        summed += (weight / total) * array.astype(np.float64)
    return summed.astype(np.float32)


def mean_by_name(
    contributed: Sequence[Mapping[str, Array]], weights: Sequence[float], kept: Mapping[str, Array]
) -> Tensors:
    """Return for each name in `kept` the mean over those that contributed it, else the kept one."""
    merged: dict[str, Array] = {}
    for name, before in kept.items():
        pairs = [
            (one[name], weight)
            for one, weight in zip(contributed, weights, strict=True)
            if name in one
        ]
        merged[name] = mean([one for one, _ in pairs], [w for _, w in pairs]) if pairs else before
    return Tensors(merged)


def capped(samples: int, cap: int) -> float:
    """Return a node's weight from the images that it says it has: 1 to `cap` (0 for no cap)."""
    return float(max(1, min(samples, cap) if cap else samples))
