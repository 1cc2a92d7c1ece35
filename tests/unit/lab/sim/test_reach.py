"""A node that speaks and cannot be reached is doubted once at most, and both ends are warned."""

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
        made.hosts[name].addresses["c"] = "elsewhere"
    return made


def kinds(world: World, name: str) -> list[str]:
    return [record.kind for record in world.hosts[name].records]


def warnings(world: World, name: str) -> tuple[str, ...]:
    return world.kernel(name).view().warnings


@pytest.mark.parametrize("seed", range(3))
def test_who_speaks_and_cannot_be_reached_is_doubted_once_at_most_and_told(seed: int) -> None:
    """With a suspicion at each failed ping there were ninety a minute."""
    made = barred(seed)
    assert made.run(lambda: len(warnings(made, "c")) == 1, 10.0)
    made.run(lambda: False, 60.0)
    for name in OTHERS:
        assert kinds(made, name).count("peer.suspect") <= 1
        assert kinds(made, name).count("peer.dead") == 0
        (held,) = (peer for peer in made.kernel(name).view().peers if peer.name == "c")
        assert held.state == "alive"
        said = f"c speaks, but this node cannot reach it: {held.unreached}"
        assert warnings(made, name) == (said,)
        assert kinds(made, name).count("peer.unreachable") == 1
    (said,) = warnings(made, "c")
    assert said.startswith("a, b say that they cannot reach this node at ")
    assert kinds(made, "c").count(UNREACHED) == 1
    for name in OTHERS:
        del made.hosts[name].addresses["c"]
    assert made.run(lambda: not any(warnings(made, name) for name in "abc"), 10.0)
    assert kinds(made, "c").count(REACHED) == 1


def test_who_cannot_be_reached_and_dies_is_dead() -> None:
    made = barred(1)
    made.run(lambda: False, 30.0)
    made.crash("c")
    views = [made.kernel(name).view for name in OTHERS]

    def dead() -> bool:
        return {one.state for view in views for one in view().peers if one.name == "c"} == {"dead"}

    assert made.run(dead, 20.0)


def test_two_that_cannot_call_each_other_and_have_a_helper_are_no_suspects() -> None:
    made = mesh(KINDS["promptfl"], 1, most=0, names=("a", "b", "c"))
    made.run(lambda: False, 5.0)
    made.cut("a", "c")
    made.run(lambda: False, 60.0)
    assert texts(made, "peer.dead") == []
    assert texts(made, "peer.suspect") == []
    assert kinds(made, "a").count("peer.unreachable") <= 2
