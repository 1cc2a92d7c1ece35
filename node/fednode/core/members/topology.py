"""The graph of nodes that exchange prompts: over the present members, the same on every node.

Each node computes the graph from the sorted names of the members that it knows to be present. So
the graph heals around dead members and takes in new ones without any message. Two nodes whose views
differ for a moment may disagree on an edge for that time. If only one end sees an edge, messages
over it are answered "stale" and not kept.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final

from fednode.core.settings import TopologySettings

Edge = frozenset[str]
SEED: Final = 1  # seed of random graphs, besides the names: all nodes need the same graph


def neighbours(own: str, names: Iterable[str], settings: TopologySettings) -> frozenset[str]:
    """Return the nodes that a node exchanges prompts with.

    names: the present nodes; the node itself may be among them.
    """
    if settings.kind == "full":
        return frozenset(names) - {own}
    present = sorted({*names, own})
    return frozenset(
        other for edge in edges(present, settings) if own in edge for other in edge - {own}
    )


def edges(names: Sequence[str], settings: TopologySettings) -> set[Edge]:
    """Return the graph over sorted names, which is connected."""
    if settings.kind == "ring":
        return _ring(names, 1)
    if settings.kind == "full" or settings.degree >= len(names) - 1:
        return {frozenset(pair) for pair in combinations(names, 2)}
    return _regular(names, settings.degree)


def _ring(names: Sequence[str], step: int) -> set[Edge]:
    """Return the edges between names that are `step` places apart in a ring."""
    count = len(names)
    pairs = (frozenset({names[at], names[(at + step) % count]}) for at in range(count))
    return {edge for edge in pairs if len(edge) == 2}


def _regular(names: Sequence[str], degree: int) -> set[Edge]:
    """Return a random connected graph where all nodes have `degree` neighbours, at least two.

    Put the names in a ring in random order. Link each name to the next one, and to those that are
    some random numbers of places away. For an odd degree each node has the one across the ring as
    well; if the number of nodes is odd, too, one node then has one neighbour more.
    """
    count, half, degree = len(names), len(names) // 2, max(2, degree)
    generator, order = random.Random(f"{SEED} {' '.join(names)}"), list(names)
    generator.shuffle(order)
    across = {half} if degree % 2 else set()
    steps = [step for step in range(2, (count + 1) // 2) if step not in across]
    found = _ring(order, 1)
    for step in generator.sample(steps, degree // 2 - 1):
        found |= _ring(order, step)
    for at in range(count - half) if across else ():
        found.add(frozenset({order[at], order[(at + half) % count]}))
    return found
