"""PLAN's aggregator in numpy: every node makes the same global prompts of the same local ones.

Equations 12 and 13, per block l of a tower, for clients k:

    gamma_k = softmax_k <Q_l, F_q(T_k)>        T_global = sum_k gamma_k F_a(T_k)
    F(T) = gelu(T down + bias_down) up + bias_up

Q_l has the prompts' shape, so one scalar weighs a client in a block. objective.py has the same
computation in torch, to train the aggregator; a test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from fednode.core.types import Array, Tensors

PREFIX: Final = "aggregator."
PARTS: Final = ("query", "value")
Wide = npt.NDArray[np.float64]
_erf = np.frompyfunc(math.erf, 1, 1)


def shapes(
    name: str, prompts: tuple[int, int, int], reduction: int, tied: bool
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of one tower's aggregator arrays, for prompts [blocks, m, width]."""
    blocks, length, width = prompts
    count, hidden = (1 if tied else blocks), max(1, width // reduction)
    shapes_of: dict[str, tuple[int, ...]] = {f"{PREFIX}{name}.asks": (count, length, width)}
    for part in PARTS:
        key = f"{PREFIX}{name}.{part}."
        shapes_of[key + "down"] = (count, width, hidden)
        shapes_of[key + "down_bias"] = (count, hidden)
        shapes_of[key + "up"] = (count, hidden, width)
        shapes_of[key + "up_bias"] = (count, width)
    return shapes_of


def aggregate(
    weights: Mapping[str, Array], name: str, local: Sequence[Array], residual: bool
) -> Array:
    """Return the global prompts [blocks, m, width] of the clients' local prompts, in float32.

    local: in the order of the clients' names. Sums are in float64.
    """
    stack = np.stack(local).astype(np.float64)
    asks = weights[f"{PREFIX}{name}.asks"].astype(np.float64)
    scores = (asks * _bottleneck(weights, f"{PREFIX}{name}.query.", stack)).sum(axis=(2, 3))
    scores -= scores.max(axis=0)
    gamma = np.exp(scores) / np.exp(scores).sum(axis=0)
    values = _bottleneck(weights, f"{PREFIX}{name}.value.", stack)
    if residual:
        values = values + stack
    merged: Array = (gamma[:, :, None, None] * values).sum(axis=0).astype(np.float32)
    return merged


def _bottleneck(weights: Mapping[str, Array], key: str, x: Wide) -> Wide:
    """Return F of prompts [clients, blocks, m, width]."""
    down, up = (weights[key + part].astype(np.float64) for part in ("down", "up"))
    hidden = x @ down + weights[key + "down_bias"][:, None].astype(np.float64)
    gelu = 0.5 * hidden * (1.0 + np.asarray(_erf(hidden / math.sqrt(2.0)), dtype=np.float64))
    returned: Wide = gelu @ up + weights[key + "up_bias"][:, None].astype(np.float64)
    return returned


def split(tensors: Tensors) -> tuple[Tensors, Tensors]:
    """Return the prompts and the aggregators of a set of arrays."""
    prompts = {name: array for name, array in tensors.items() if not name.startswith(PREFIX)}
    rest = {name: array for name, array in tensors.items() if name.startswith(PREFIX)}
    return Tensors(prompts), Tensors(rest)
