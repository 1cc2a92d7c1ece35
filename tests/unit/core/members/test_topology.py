"""Graphs: the same on every node, as they are called, and linked."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from fednode.core.members.topology import edges, neighbours
from fednode.core.settings import TopologySettings


def names(count: int) -> list[str]:
    return [f"n{number:02}" for number in range(count)]


def degrees(found: set[frozenset[str]]) -> Counter[str]:
    return Counter(name for edge in found for name in edge)


def linked(found: set[frozenset[str]], among: list[str]) -> bool:
    seen = {among[0]}
    for _ in among:
        seen |= {name for edge in found if edge & seen for name in edge}
    return seen == set(among)


KINDS = [
    TopologySettings(),
    TopologySettings("ring"),
    TopologySettings("k-regular", degree=3),
    TopologySettings("k-regular", degree=4),
]


@pytest.mark.parametrize("settings", KINDS, ids=lambda one: f"{one.kind}-{one.degree}")
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 13, 30])
def test_every_node_sees_the_same_graph_and_it_is_linked(
    settings: TopologySettings, count: int
) -> None:
    everyone = names(count)
    found = edges(everyone, settings)
    assert all(len(edge) == 2 for edge in found)
    assert linked(found, everyone)
    for own, other in itertools.permutations(everyone, 2):
        seen = other in neighbours(own, reversed(everyone), settings)
        assert seen == (frozenset({own, other}) in found)


def test_rings_have_two_neighbours() -> None:
    assert set(degrees(edges(names(9), TopologySettings("ring"))).values()) == {2}


@pytest.mark.parametrize("degree", [2, 3, 4, 5])
@pytest.mark.parametrize("mesh", range(10))
def test_regular_graphs_are_regular(degree: int, mesh: int) -> None:
    called = [f"mesh-{mesh}-{name}" for name in names(12)]
    found = edges(called, TopologySettings("k-regular", degree=degree))
    assert set(degrees(found).values()) == {degree}
    odd = degrees(edges(called[:11], TopologySettings("k-regular", degree=3)))
    assert sorted(odd.values()) == [3] * 10 + [4]


def test_other_names_draw_other_graphs() -> None:
    """The names are the seed of the draw, so each node draws the same graph."""
    shapes = []
    for mesh in ("one", "two"):
        called = [f"{mesh}-{name}" for name in names(12)]
        found = edges(called, TopologySettings("k-regular"))
        shapes.append({frozenset(map(called.index, edge)) for edge in found})
    assert shapes[0] != shapes[1]
