"""A member that contributes late in each round: what it costs, and that all nodes end alike."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import pytest

from fednode.core.rounds.lateness import LAST_ROUNDS
from fednode.sim.world import World
from tests.unit.sim.meshes import KINDS, Kind, digests, mesh, texts

ROUNDS = 44
DEADLINE_S = 5.0


def played(kind: Kind, late_s: float) -> tuple[World, list[float]]:
    """Run a mesh whose node d needs so long to tune; return how long each round of a took."""
    world = mesh(kind, most=ROUNDS, deadline_s=DEADLINE_S)
    world.hosts["d"].tune_s = late_s
    ends = [world.now]
    while len(ends) <= ROUNDS:
        assert world.run(lambda: world.kernel("a").view().round >= len(ends), 600.0)
        ends.append(world.now)
    assert world.run(world.finished, 600.0)
    return world, [after - before for before, after in pairwise(ends)]


@pytest.mark.parametrize("late_s", [1.0, 0.3 * DEADLINE_S])
@pytest.mark.parametrize("kind", ["promptfl", "promptfl-int8", "plan", "diprompt"])
def test_it_costs_little_and_all_end_alike(kind: str, late_s: float) -> None:
    world, rounds = played(KINDS[kind], late_s)
    twenty = rounds[1:21]
    assert sum(twenty) <= 2 * 20 * median(rounds)
    assert texts(world, "peer.late")
    assert max(rounds[-LAST_ROUNDS:]) > late_s, "the last rounds wait for it"
    assert len(set(digests(world).values())) == 1


def test_where_nobody_is_late_nothing_is_said_of_it() -> None:
    world, _ = played(KINDS["promptfl"], 0.3)
    assert texts(world, "peer.late") == texts(world, "round.resting") == []


def test_a_late_member_still_contributes() -> None:
    """All nodes merge its contribution in some rounds, and in the last ones."""
    world, _ = played(KINDS["promptfl"], 1.0)
    held = world.hosts["a"].durable
    assert held is not None
    assert held.company[3] > LAST_ROUNDS
