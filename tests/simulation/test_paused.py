"""A paused site costs its peers no deadline, and takes part again when it goes on."""

from __future__ import annotations

import pytest

from fednode.lab.sim.world import World
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from tests.unit.lab.sim.meshes import KINDS, Kind, digests, mesh, texts

DEADLINE_S = 60.0
ROUNDS = 30
ZERODFL = Kind(ZeroDFL, ZeroDFLConfig(recipients=2), {"context": (4, 3)})
MESHES = pytest.mark.parametrize(
    "kind",
    [KINDS["promptfl"], KINDS["promptfl-some"], KINDS["plan"], ZERODFL],
    ids=["promptfl", "drawn", "plan", "zerodfl"],
)


def begun(kind: Kind, seed: int = 1) -> World:
    """Return a mesh of four in its fifth round."""
    world = mesh(kind, seed, ROUNDS, deadline_s=DEADLINE_S)
    assert world.run(lambda: world.kernel("a").view().round >= 5, 60.0)
    return world


def lives(world: World) -> str:
    """Return the first letter of what each node does."""
    return "".join(world.kernel(name).view().life[0] for name in sorted(world.hosts))


@MESHES
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_paused_site_costs_its_peers_no_deadline(kind: Kind, seed: int) -> None:
    world = begun(kind, seed)
    world.command("d", "pause")
    assert world.run(lambda: lives(world) == "fffp", DEADLINE_S - 1.0), "a deadline passed"
    assert texts(world, "round.deadline") == []
    world.command("d", "resume")
    assert world.run(world.finished, 600.0)
    if kind is not ZERODFL:
        assert len(set(digests(world).values())) == 1


@MESHES
def test_a_site_that_goes_on_is_waited_for_again(kind: Kind) -> None:
    world = begun(kind)
    world.command("d", "pause")
    world.run(lambda: False, 2.0)
    at = world.kernel("a").view().round
    assert world.kernel("d").view().round < at, "the others went on"
    world.command("d", "resume")
    assert world.run(world.finished, 600.0)
    assert texts(world, "round.deadline") == []
    held = world.hosts["d"].durable
    assert held is not None
    assert held.merge_counts.merged > (ROUNDS - at) // 2
