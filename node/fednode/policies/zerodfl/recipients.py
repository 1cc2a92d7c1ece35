"""ZeroDFL's inverse-frequency choice of peers (IJCNN 2025, equations 1 and 2).

    w_j = 1 / (f_j + epsilon)        (1)    f_j: how often peer j was chosen
    p_j = w_j / sum_k w_k            (2)    over the peers that can be chosen

With the released code's epsilon of 1e-6 a peer never chosen outweighs one chosen once a million to
one, so everyone is chosen once before anyone twice. Between peers already chosen the preference is
mild: 11 to 10 for a peer chosen 10 times against one chosen 11 times.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
EPSILON: Final = 1e-6
"""epsilon of equation 1, as in the released code: the paper's text has lost its value."""


def probabilities(
    counts: Mapping[str, int], peers: Iterable[str], epsilon: float
) -> dict[str, float]:
    """Return equation 2's probability of each peer; a peer without a count has f = 0."""
    names = sorted(peers)
    weights = _weights(counts, names, epsilon)
    return dict(zip(names, (weights / weights.sum()).tolist(), strict=True))


def join(counts: dict[str, int], peer: str) -> None:
    """Give a peer that is met for the first time the lowest count among those met before.

    Equation 1 would give a late joiner f = 0, and every node would favour it until it caught up
    (docs/divergence.md). Peers met before the first draw all start at 0.
    """
    if peer not in counts:
        values = counts.values()
        counts[peer] = 0 if 0 in values else min(values, default=0)  # mostly the first is 0


def draw_recipients(
    counts: Mapping[str, int],
    peers: Iterable[str],
    how_many: int,
    epsilon: float,
    generator: random.Random,
) -> list[str]:
    """Draw distinct recipients one after another, renormalising equation 2 after each."""
    names = sorted(peers)
    weights = _weights(counts, names, epsilon)
    chosen: list[str] = []
    while len(chosen) < min(how_many, len(names)):
        at = _draw(weights, generator)
        weights[at] = 0.0
        chosen.append(names[at])
    return chosen


def _weights(counts: Mapping[str, int], names: Sequence[str], epsilon: float) -> Numbers:
    """Return the weights of equation 1, in the order of the names."""
    drawn = map(counts.get, names, repeat(0))
    return 1.0 / (np.fromiter(drawn, np.float64, len(names)) + epsilon)


def _draw(weights: Numbers, generator: random.Random) -> int:
    """Draw a place with a probability in proportion to its weight (equation 2); never one of 0."""
    reached = np.cumsum(weights)
    point = generator.random() * reached[-1]
    return int(reached.searchsorted(point, "right"))
