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

from fednode.core.members.table import Members
from fednode.core.settings import TopologySettings

Edge = frozenset[str]
REGULAR_TRIES: Final = 200
SEED: Final = 1
"""Seed of random graphs, besides the names: all nodes need the same graph."""


class Links:
    """The linked peers of one node: those with which its policy exchanges prompts.

    They are live and active. A node that takes part in no round itself has no links (run.py).
    """

    def __init__(self, name: str, topology: TopologySettings) -> None:
        self._name, self._topology = name, topology
        self._linked: set[str] = set()

    def __contains__(self, peer: str) -> bool:
        """Tell whether a peer is linked."""
        return peer in self._linked

    @property
    def linked(self) -> list[str]:
        """The linked peers, sorted."""
        return sorted(self._linked)

    def follow(
        self, members: Members, moved: set[str], active: bool = True
    ) -> tuple[list[str], list[str]]:
        """Return the peers whose links end and begin, sorted.

        moved: the peers that came or went, or became active or inactive. In a full graph no other
        link changes. active: whether the node itself takes part in rounds.
        """
        if self._topology.kind == "full":
            ready = {peer for peer in moved if members[peer].live} - members.inactive
            wanted = ready if active else set()
            gone, fresh = (moved & self._linked) - wanted, wanted - self._linked
        else:
            live = members.active() if active else set()
            wanted = live & neighbours(self._name, live, self._topology)
            gone, fresh = self._linked - wanted, wanted - self._linked
        self._linked -= gone  # in place: a copy for each peer that comes costs N * N
        self._linked |= fresh
        return sorted(gone), sorted(fresh)


def neighbours(own: str, names: Iterable[str], settings: TopologySettings) -> frozenset[str]:
    """Return the nodes that a node exchanges prompts with.

    names: the present nodes; the node itself may be among them.
    """
    present = sorted({*names, own})
    if settings.kind == "full":
        return frozenset(present) - {own}
    return frozenset(
        other for edge in edges(present, settings) if own in edge for other in edge - {own}
    )


def edges(names: Sequence[str], settings: TopologySettings) -> set[Edge]:
    """Return the graph over sorted names; every kind but "edges" gives a connected graph."""
    kind, count = settings.kind, len(names)
    if kind == "edges":
        listed = {frozenset(pair) for pair in settings.edges}
        return {edge for edge in listed if edge <= set(names)}
    if kind == "ring":
        return _lattice(names, 2)
    if kind == "full" or settings.degree >= count - 1:
        return {frozenset(pair) for pair in combinations(names, 2)}
    generator = random.Random(f"{SEED} {' '.join(names)}")
    return _regular(names, settings.degree, generator)


def _lattice(names: Sequence[str], degree: int) -> set[Edge]:
    """Return the ring in which each node has degree / 2 neighbours on either side."""
    count = len(names)
    lattice = {
        frozenset({names[at], names[(at + step) % count]})
        for at in range(count)
        for step in range(1, degree // 2 + 1)
    }
    return {edge for edge in lattice if len(edge) == 2}


def _regular(names: Sequence[str], degree: int, generator: random.Random) -> set[Edge]:
    """Return a random connected graph where all nodes have `degree` neighbours.

    If nodes times degree is odd, one node has one neighbour more. Loose ends are paired at random
    until the graph is simple and connected. After REGULAR_TRIES failures a lattice in random order
    is used.
    """
    for _ in range(REGULAR_TRIES):
        ends = [name for name in names for _ in range(degree)]
        if len(ends) % 2:
            ends.append(generator.choice(list(names)))
        paired = _paired(ends, generator)
        if paired is not None and _connected(names, paired):
            return paired
    order = list(names)
    generator.shuffle(order)
    return _lattice(order, max(2, degree + degree % 2))


def _paired(ends: list[str], generator: random.Random) -> set[Edge] | None:
    """Return edges between loose ends, paired at random; None if no valid pair is found.

    Pairs that do not fit are drawn again.
    """
    pairs: set[Edge] = set()
    while ends:
        generator.shuffle(ends)
        left: list[str] = []
        for node, other in zip(ends[::2], ends[1::2], strict=True):
            edge = frozenset({node, other})
            if node == other or edge in pairs:
                left += [node, other]
            else:
                pairs.add(edge)
        if len(left) == len(ends):
            return None
        ends = left
    return pairs


def _connected(names: Sequence[str], paired: set[Edge]) -> bool:
    seen, front = {names[0]}, [names[0]]
    beside: dict[str, list[str]] = {name: [] for name in names}
    for edge in paired:
        node, other = sorted(edge)
        beside[node].append(other)
        beside[other].append(node)
    while front:
        fresh = [name for name in beside[front.pop()] if name not in seen]
        seen.update(fresh)
        front += fresh
    return len(seen) == len(names)
