"""What a checker of a simulated mesh is, and how it says what it saw."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from node.core.events import Effect, Event
from node.sim.world import World


class Violation(AssertionError):
    """A promise was broken; checker: its name."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(checker, text)
        self.checker = checker

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.args[1]}"


@dataclass(slots=True)
class Check:
    """A promise of honest nodes; liars: the names of the others."""

    liars: Collection[str] = ()

    def started(self, world: World, name: str) -> None:
        """See a node switched on."""

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        """See a step."""

    def broken(self, world: World, name: str, text: str) -> Violation:
        """Return the violation of this promise."""
        return Violation(type(self).__name__, f"at {world.now:.3f} s {name} {text}")
