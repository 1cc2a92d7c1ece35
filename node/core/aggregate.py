"""Merge what nodes contributed: sums in float64 and in the order given, so that all get equal bits.

Callers give contributions sorted by sender (node/core/rounds.py does).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from node.core.types import Array

RATIO_MAX: Final = 10.0


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


def weights_of(samples: Sequence[int], cap: int) -> list[float]:
    """Return nodes' weights from the images that they say they have.

    Each is at least 1, and at most `cap` (0 for no cap) and RATIO_MAX times the median of them all:
    a node that claims a billion images weighs no more than ten that tell the truth.
    """
    said = [max(1, min(one, cap) if cap else one) for one in samples]
    most = RATIO_MAX * float(np.median(said)) if said else 0.0
    return [min(float(one), most) for one in said]
