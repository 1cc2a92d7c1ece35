"""Nodes that speak and cannot be reached: no doubt comes and goes, and both ends are warned."""

from __future__ import annotations

import pytest

from fednode.core.members.reachability import REACHED, UNREACHED
from fednode.lab.sim.world import World
from tests.unit.lab.sim.meshes import KINDS, mesh, texts

OTHERS = "ab"


def barred(seed: int) -> World:
    """Return a mesh in which nobody can call c, and c calls everybody."""
    made = mesh(KINDS["promptfl"], seed, most=0, names=("a", "b", "c"))
    for name in OTHERS:
        made.network.bar(name, "c")
    return made


def kinds(world: World, name: str) -> list[str]:
    return [record.kind for record in world.hosts[name].records]


@pytest.mark.parametrize("seed", range(3))
def test_who_speaks_and_cannot_be_reached_is_doubted_once_at_most(seed: int) -> None:
    """With a suspicion at each failed ping there were ninety a minute."""
    made = barred(seed)
    made.run(lambda: False, 60.0)
    for name in OTHERS:
        assert kinds(made, name).count("peer.suspect") <= 1
        assert kinds(made, name).count("peer.dead") == 0
        held = {peer.name: peer for peer in made.kernel(name).view().peers}
        assert held["c"].state == "alive"
        assert made.kernel(name).view().warnings == (
            f"c speaks, but this node cannot reach it: {held['c'].unreached}",
        )
        assert kinds(made, name).count("peer.unreachable") == 1


@pytest.mark.parametrize("seed", range(3))
def test_who_cannot_be_reached_is_told_until_it_can(seed: int) -> None:
    made = barred(seed)

    def warned() -> bool:
        return len(made.kernel("c").view().warnings) == 1

    assert made.run(warned, 10.0)
    made.run(lambda: False, 30.0)
    (said,) = made.kernel("c").view().warnings
    assert said.startswith("a, b say that they cannot reach this node at ")
    assert kinds(made, "c").count(UNREACHED) == 1
    made.network.unbar("a", "c")
    made.network.unbar("b", "c")

    def calm() -> bool:
        return not any(made.kernel(name).view().warnings for name in "abc")

    assert made.run(calm, 10.0)
    assert kinds(made, "c").count(REACHED) == 1


@pytest.mark.parametrize("seed", range(3))
def test_who_cannot_be_reached_and_dies_is_dead(seed: int) -> None:
    made = barred(seed)
    made.run(lambda: False, 30.0)
    made.crash("c")

    def dead() -> bool:
        return all(
            peer.state == "dead"
            for name in OTHERS
            for peer in made.kernel(name).view().peers
            if peer.name == "c"
        )

    assert made.run(dead, 20.0)


def test_two_that_cannot_call_each_other_and_have_a_helper_are_no_suspects() -> None:
    made = mesh(KINDS["promptfl"], 1, most=0, names=("a", "b", "c"))
    made.run(lambda: False, 5.0)
    made.cut("a", "c")
    made.run(lambda: False, 60.0)
    assert texts(made, "peer.dead") == []
    assert texts(made, "peer.suspect") == []
    assert kinds(made, "a").count("peer.unreachable") <= 2
