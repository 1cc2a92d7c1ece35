"""TRIP's routing against the published steps in float64."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from fednode.policies.trip import routing
from tests.unit.policies.tiny import (
    Wide,
    unit,
)


def tokens(seed: int, count: int = 23, width: int = 6) -> Wide:
    """Return tokens in three heaps, so that clusters overflow."""
    draw = np.random.default_rng(seed)
    heaps = 4.0 * draw.standard_normal((3, width))
    return np.asarray(heaps[draw.integers(0, 3, count)] + draw.standard_normal((count, width)))


def by_hand(x: Wide, known: Wide, factor: float, draw: np.random.Generator) -> list[float]:
    """Return the weights by the released code's steps, token by token, with another matching."""
    count = len(known)
    room = [int(len(x) // count * factor) + (k < len(x) % count) for k in range(count)]
    centres = [x[at].copy() for at in draw.permutation(len(x))[:count]]
    prices, sizes = [0.0] * count, [0] * count
    for _ in range(100):
        costs = []
        for at, one in enumerate(x):
            each = [math.dist(one, c) + p for c, p in zip(centres, prices, strict=True)]
            costs.append((min(each), at, each.index(min(each))))
        held: list[list[int]] = [[] for _ in range(count)]
        for _cost, at, k in sorted(costs):
            if len(held[k]) < room[k]:
                held[k].append(at)
        fresh = []
        for k, mine in enumerate(held):
            sizes[k] = len(mine)
            prices[k] += 1e-4 * (len(mine) - room[k])
            if mine:
                fresh.append(sum(x[at] for at in mine) / len(mine))
            else:
                far = [min(math.dist(one, c) for c in centres) for one in x]
                fresh.append(x[far.index(max(far))])
                prices[k] = 0.0
        if sum(map(math.dist, fresh, centres)) / count < 1e-4:
            break
        centres = fresh
    cosines = unit(np.array(centres)) @ unit(known).T
    scores = {
        order: sum(cosines[k, order[k]] for k in range(count))
        for order in permutations(range(count))
    }
    best = max(scores, key=lambda order: scores[order])
    found = [0.0] * count
    for k in range(count):
        found[best[k]] = sizes[k] / sum(sizes)
    return found


@pytest.mark.parametrize("factor", [1.0, 2.0, 0.5])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_weights_are_the_published_ones(count: int, factor: float) -> None:
    known = routing.keys(3, count, 6)
    dropped = 0
    for seed in range(3):
        x = tokens(seed)
        draws = [np.random.default_rng(seed) for _ in range(2)]
        found = routing.weights(x, known, factor, draws[0])
        assert found.tolist() == pytest.approx(by_hand(x, known, factor, draws[1]))
        assert float(found.sum()) == pytest.approx(1.0)
        room = routing.capacities(len(x), count, factor)
        _, sizes = routing.clustered(x, room, np.random.default_rng(seed))
        assert (sizes <= room).all()
        dropped += int(sizes.sum() < len(x))
    if factor < 1 or (factor == 1 and count > 1):
        assert dropped, "no cluster was full"


def test_capacities_are_equal_shares_and_the_first_take_the_rest() -> None:
    assert routing.capacities(197, 4, 1.0).tolist() == [50, 49, 49, 49]
    assert routing.capacities(197, 4, 2.0).tolist() == [99, 98, 98, 98]
    assert routing.capacities(197, 8, 1.0).tolist() == [25, 25, 25, 25, 25, 24, 24, 24]


def test_keys_are_orthonormal_and_of_their_seed() -> None:
    known = routing.keys(5, 4, 32)
    assert np.allclose(known @ known.T, np.eye(4), atol=1e-12)
    assert np.array_equal(known, routing.keys(5, 4, 32))
    assert not np.allclose(known, routing.keys(6, 4, 32))
    # The signs do not depend on the library: a key has a positive product with its own draw.
    drawn_first = np.random.default_rng(5).standard_normal((32, 4))[:, 0]
    assert known[0] @ drawn_first > 0


def test_an_image_s_weights_do_not_depend_on_its_place() -> None:
    known = routing.keys(0, 3, 6)
    states = np.stack([tokens(seed) for seed in range(4)]).astype(np.float32)
    found = routing.routed(states, known, (1.0, 2.0))
    assert found.shape == (4, 2, 3)
    assert np.array_equal(found[::-1], routing.routed(states[::-1], known, (1.0, 2.0)))
    assert np.allclose(found.sum(axis=2), 1.0)
