"""Faults of a simulated mesh that begin and end: crashes, cut links, clogs, full disks, pauses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fednode.lab.sim.world import World

Whom = tuple[str, ...]
Switch = Callable[[World, Whom], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that begins at `at` (virtual seconds) and ends `lasts` seconds later.

    kind: a key of FAULTS. whom: the names of the nodes that it meets.
    """

    at: float
    kind: str
    whom: Whom
    lasts: float

    def __str__(self) -> str:
        return f"{self.at:.2f} s {self.kind} {' '.join(self.whom)} for {self.lasts:.2f} s"


def schedule(world: World, fault: Fault) -> None:
    """Enter the begin and the end of a fault into the world's clock.

    `_heal` (node/fednode/lab/simulate/scenario.py) may end the fault earlier.
    """
    do, undo = FAULTS[fault.kind]
    world.at(fault.at, lambda: do(world, fault.whom))
    world.at(fault.at + fault.lasts, lambda: undo(world, fault.whom))


def switch_on(world: World, name: str) -> None:
    if world.hosts[name].kernel is None:
        world.start(name)


def _on(world: World, whom: Whom) -> None:
    switch_on(world, whom[0])


def _wipe(world: World, whom: Whom) -> None:
    world.crash(whom[0])
    world.hosts[whom[0]].wipe()


def _restore(world: World, whom: Whom) -> None:
    world.crash(whom[0])
    world.hosts[whom[0]].restore()
    world.start(whom[0])


def _links(change: Callable[[World, str, str], None]) -> Switch:
    """Return what changes each link between some nodes and the rest."""

    def change_all(world: World, whom: Whom) -> None:
        for node in whom:
            for other in sorted(set(world.hosts) - set(whom)):
                change(world, node, other)

    return change_all


def _clear(world: World, whom: Whom) -> None:
    for arrive in world.network.clear(whom[0], whom[1]):
        world.at(0.0, arrive)


def _fill(full: bool) -> Switch:
    return lambda world, whom: setattr(world.hosts[whom[0]], "full", full)


FAULTS: Final[dict[str, tuple[Switch, Switch]]] = {
    "crash": (lambda world, whom: world.crash(whom[0]), _on),
    "wipe": (_wipe, _on),
    "cut": (_links(World.cut), _links(World.mend)),
    "one-way": (
        lambda world, whom: world.network.cut(whom[0], whom[1]),
        lambda world, whom: world.network.mend(whom[0], whom[1]),
    ),
    "clog": (lambda world, whom: world.network.clog(whom[0], whom[1]), _clear),
    "fill": (_fill(True), _fill(False)),
    "pause": (
        lambda world, whom: world.command(whom[0], "pause"),
        lambda world, whom: world.command(whom[0], "resume"),
    ),
    "backup": (lambda world, whom: world.hosts[whom[0]].back_up(), _restore),
}
"""The functions that begin and end each kind of fault."""
