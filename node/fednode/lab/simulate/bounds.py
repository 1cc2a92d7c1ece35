"""Checks of what a member may make an honest node send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from fednode.core.events import Effect, Event, Received, Send
from fednode.core.rounds.exchange import AGAIN
from fednode.lab.sim.world import World
from fednode.lab.simulate.check import Check


@dataclass(slots=True)
class RepeatsItselfOnce(Check):
    """In a round a node repeats its messages once to each peer that asks for it.

    After a commit a node may still answer for the round that ended, and then for the next one.
    """

    REPEATS_MAX: Final = 2
    _given: Counter[tuple[str, str, int]] = field(default_factory=Counter)

    def started(self, world: World, name: str) -> None:
        """Forget what the node sent before it restarted."""
        self._given = Counter({key: n for key, n in self._given.items() if key[0] != name})

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        """Count the requests of each peer that the node answers between two commits."""
        if name in self.liars or not isinstance(event, Received) or event.message.phase != AGAIN:
            return
        if not any(isinstance(effect, Send) for effect in effects):
            return
        held = world.hosts[name].durable
        key = name, event.message.sender, held.policy.round if held else 0
        self._given[key] += 1
        if self._given[key] > self.REPEATS_MAX:
            text = f"repeats itself to {key[1]} {self._given[key]} times after round {key[2]}"
            raise self.broken(world, name, text)
