"""Merge contributions: sums in float64, in the order given, so that all nodes get equal bits.

Callers give contributions sorted by sender (node/fednode/core/rounds/engine.py does).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

import numpy as np

from fednode.core.types import Array

RATIO_MAX: Final = 10.0


def mean(arrays: Sequence[Array], weights: Sequence[float]) -> Array:
    """Return sum_i w_i a_i / sum_i w_i of arrays of one shape, in float32 (FedAvg).

    Raise ValueError if there are no arrays or the weights do not sum to more than 0.
    """
    total = float(sum(weights))
    if not arrays or total <= 0.0:
        raise ValueError(f"{len(arrays)} arrays with weights that sum to {total:g} have no mean")
    summed = np.zeros(arrays[0].shape, dtype=np.float64)
    for array, weight in zip(arrays, weights, strict=True):
        summed += (weight / total) * array.astype(np.float64)
    return summed.astype(np.float32)


def weights_of(samples: Sequence[int]) -> list[float]:
    """Return the weights of nodes from the numbers of images that they report.

    Each weight is at least 1, and at most RATIO_MAX times the median of all numbers: a node that
    claims a billion images weighs no more than ten honest nodes.
    """
    said = [max(1, count) for count in samples]
    most = RATIO_MAX * median(map(float, said)) if said else 0.0
    return [min(float(count), most) for count in said]
