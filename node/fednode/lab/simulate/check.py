"""The base class of the checkers of a simulated mesh, and the error that they raise."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fednode.core.events import Effect, Event
from fednode.lab.sim.world import World


class Violation(AssertionError):
    """A node broke a promise. checker: the name of the checker that found it."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(checker, text)
        self.checker = checker

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.args[1]}"


@dataclass(slots=True)
class Check:
    """A promise that honest nodes keep; liars: the names of the hostile nodes."""

    liars: Collection[str] = ()

    def started(self, world: World, name: str) -> None:
        """Inspect a node that was just switched on, before its first step."""

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        """Inspect one step of a node: its event and its effects, before any effect is performed."""

    def broken(self, world: World, name: str, text: str) -> Violation:
        """Return the Violation of this promise by a node; the caller raises it."""
        return Violation(type(self).__name__, f"at {world.now:.3f} s {name} {text}")
