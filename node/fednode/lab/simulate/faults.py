"""Faults of a simulated mesh that begin and end: crashes, cut links, clogs, full disks, pauses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fednode.lab.sim.world import World


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that begins at `at` (virtual seconds) and ends `lasts` seconds later.

    kind: a key of FAULTS. whom: the names of the nodes that it meets.
    """

    at: float
    kind: str
    whom: tuple[str, ...]
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
    """Start a node if it is off."""
    if world.hosts[name].kernel is None:
        world.start(name)


def _off(world: World, whom: tuple[str, ...]) -> None:
    world.crash(whom[0])


def _on(world: World, whom: tuple[str, ...]) -> None:
    switch_on(world, whom[0])


def _wipe(world: World, whom: tuple[str, ...]) -> None:
    world.crash(whom[0])
    world.hosts[whom[0]].wipe()


def _back_up(world: World, whom: tuple[str, ...]) -> None:
    world.hosts[whom[0]].back_up()


def _restore(world: World, whom: tuple[str, ...]) -> None:
    world.crash(whom[0])
    world.hosts[whom[0]].restore()
    world.start(whom[0])


def _links(world: World, whom: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(node, other) for node in whom for other in sorted(set(world.hosts) - set(whom))]


def _part(world: World, whom: tuple[str, ...]) -> None:
    for node, other in _links(world, whom):
        world.cut(node, other)


def _join(world: World, whom: tuple[str, ...]) -> None:
    for node, other in _links(world, whom):
        world.mend(node, other)


def _deafen(world: World, whom: tuple[str, ...]) -> None:
    world.network.cut(whom[0], whom[1])


def _hear(world: World, whom: tuple[str, ...]) -> None:
    world.network.mend(whom[0], whom[1])


def _clog(world: World, whom: tuple[str, ...]) -> None:
    world.network.clog(whom[0], whom[1])


def _clear(world: World, whom: tuple[str, ...]) -> None:
    for arrive in world.network.clear(whom[0], whom[1]):
        world.at(0.0, arrive)


def _fill(world: World, whom: tuple[str, ...]) -> None:
    world.hosts[whom[0]].full = True


def _empty(world: World, whom: tuple[str, ...]) -> None:
    world.hosts[whom[0]].full = False


def _pause(world: World, whom: tuple[str, ...]) -> None:
    world.command(whom[0], "pause")


def _resume(world: World, whom: tuple[str, ...]) -> None:
    world.command(whom[0], "resume")


Switch = Callable[[World, tuple[str, ...]], None]
FAULTS: Final[dict[str, tuple[Switch, Switch]]] = {
    "crash": (_off, _on),
    "wipe": (_wipe, _on),
    "cut": (_part, _join),
    "one-way": (_deafen, _hear),
    "clog": (_clog, _clear),
    "fill": (_fill, _empty),
    "pause": (_pause, _resume),
    "backup": (_back_up, _restore),
}
"""The functions that begin and end each kind of fault."""
