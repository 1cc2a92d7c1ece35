"""ZeroDFL's inverse-frequency choice of peers (IJCNN 2025, equations 1 and 2).

    w_j = 1 / (f_j + epsilon)        (1)    f_j: how often peer j was chosen and acknowledged
    p_j = w_j / sum_k w_k            (2)    over the peers that can be chosen

With the released code's epsilon of 1e-6 a peer never chosen outweighs one chosen once a million to
one: the rule is a random round robin. With epsilon 1 it is mild.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence


def probabilities(
    counts: Mapping[str, int], peers: Iterable[str], epsilon: float
) -> dict[str, float]:
    """Return equation 2's probability of each peer; a peer without a count has the lowest one.

    Equation 1 would give a late joiner f = 0, and every node would favour it until it caught up;
    starting at the lowest count among the others avoids that (docs/divergence.md).
    """
    names = sorted(peers)
    known = with_late_joiners(counts, names)
    weights = {name: 1.0 / (known[name] + epsilon) for name in names}
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def with_late_joiners(counts: Mapping[str, int], peers: Sequence[str]) -> dict[str, int]:
    """Return a count for every peer: its own, or the lowest among the peers that have one."""
    lowest = min((counts[name] for name in peers if name in counts), default=0)
    return {name: counts.get(name, lowest) for name in peers}


def draw(chances: Mapping[str, float], generator: random.Random) -> str:
    """Draw one peer; names are walked in order, so that a seed repeats the draw."""
    point = generator.random() * sum(chances.values())
    names = sorted(chances)
    for name in names:
        point -= chances[name]
        if point < 0:
            return name
    return names[-1]


def draw_recipients(
    counts: Mapping[str, int],
    peers: Iterable[str],
    how_many: int,
    epsilon: float,
    generator: random.Random,
) -> list[str]:
    """Draw distinct recipients one after another, renormalising equation 2 after each."""
    # Late joiners get their count once, from all who can be chosen, not from who is left.
    known = with_late_joiners(counts, sorted(peers))
    left = set(known)
    chosen: list[str] = []
    while left and len(chosen) < how_many:
        peer = draw(probabilities(known, left, epsilon), generator)
        left.remove(peer)
        chosen.append(peer)
    return chosen


def draw_sources(
    counts: Mapping[str, int],
    peers: Iterable[str],
    rows: int,
    epsilon: float,
    generator: random.Random,
) -> list[str]:
    """Draw one source per row with replacement, as the released code does (METHODS, section 1)."""
    names = sorted(peers)
    if not names:
        return []
    chances = probabilities(counts, names, epsilon)
    return [draw(chances, generator) for _ in range(rows)]
