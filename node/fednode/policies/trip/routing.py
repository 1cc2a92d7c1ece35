"""TRIP's routing: how much of each prompt an image takes, from its tokens alone.

The tokens after the image tower's last block are clustered, with at most so many tokens a cluster.
Tokens take the cluster with the lowest |x - c| + lambda_k, the nearest first; a token whose cluster
is full does not count. lambda_k changes by ETA (size_k - capacity_k) in a step. Clusters and keys
are matched one to one for the largest sum of cosines, and a prompt's weight is the share of its
cluster among the tokens that count.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from itertools import permutations
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Wide = npt.NDArray[np.float64]

STEPS: Final = 100
ETA: Final = 1e-4
STILL: Final = 1e-4
"""Mean movement of the centres below which clustering ends."""


def keys(seed: int, count: int, width: int) -> Wide:
    """Return orthonormal keys [count, width], equal for equal seeds on every machine."""
    drawn = np.random.default_rng(seed).standard_normal((width, count))
    q, r = np.linalg.qr(drawn)
    directions: Wide = (q * np.sign(np.diag(r))).T  # the signs of q are the library's choice
    return directions


def capacities(tokens: int, clusters: int, factor: float) -> npt.NDArray[np.int64]:
    """Return the most tokens of each cluster; the first ones take the remainder."""
    most = np.full(clusters, int(tokens // clusters * factor))
    most[: tokens % clusters] += 1
    return most


def weights(tokens: Wide, known: Wide, factor: float, draw: np.random.Generator) -> Wide:
    """Return the weights [E] of the prompts for tokens [L, width] and keys [E, width]."""
    room = capacities(len(tokens), len(known), factor)
    centres, sizes = clustered(tokens, room, draw)
    a, b = (x / np.maximum(np.linalg.norm(x, axis=1), 1e-12)[:, None] for x in (centres, known))
    cosines = a @ b.T
    orders = _orders(len(known))
    best = orders[cosines[np.arange(len(known)), orders].sum(axis=1).argmax()]
    shares = np.zeros(len(known))
    shares[best] = sizes / sizes.sum()
    return shares


def clustered(
    tokens: Wide, room: npt.NDArray[np.int64], draw: np.random.Generator
) -> tuple[Wide, Wide]:
    """Return centres [E, width] and sizes [E] of clusters that begin at drawn tokens."""
    count = len(room)
    centres = tokens[draw.permutation(len(tokens))[:count]].copy()
    prices, sizes = np.zeros(count), np.zeros(count)
    for _ in range(STEPS):
        apart = np.linalg.norm(tokens[:, None] - centres[None], axis=2)
        cost = apart + prices
        wanted, least = cost.argmin(axis=1), cost.min(axis=1)
        fresh = np.empty_like(centres)
        for k in range(count):
            mine = np.flatnonzero(wanted == k)
            mine = mine[np.argsort(least[mine], kind="stable")][: room[k]]
            sizes[k] = len(mine)
            prices[k] += ETA * (len(mine) - room[k])
            if len(mine):
                fresh[k] = tokens[mine].mean(axis=0)
            else:  # begin again at the token that is farthest from all centres
                fresh[k], prices[k] = tokens[apart.min(axis=1).argmax()], 0.0
        moved = np.linalg.norm(fresh - centres, axis=1).mean()
        if moved < STILL:
            break
        centres = fresh
    return centres, sizes


def routed(states: Any, known: Wide, factors: tuple[float, ...]) -> npt.NDArray[np.float32]:
    """Return weights [B, factors, E] in float32 of tokens [B, L, width] in float32.

    The first centres are drawn by a seed that is made of the image's own tokens, so an image has
    the same weights wherever it stands.
    """
    shares = np.empty((len(states), len(factors), len(known)), dtype=np.float32)
    for at, state in enumerate(np.asarray(states, dtype=np.float32)):
        seed = int.from_bytes(hashlib.sha256(state.tobytes()).digest()[:8], "big")
        draw = np.random.default_rng(seed)
        for place, factor in enumerate(factors):
            shares[at, place] = weights(state.astype(np.float64), known, factor, draw)
    return shares


@lru_cache(maxsize=4)
def _orders(count: int) -> npt.NDArray[np.int64]:
    return np.array(list(permutations(range(count))))
