"""Checks of the texts that honest nodes show to people, and of the differences they must report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import cast

from fednode.core.agreement import DIFFERS, PEERS
from fednode.core.events import Effect, Event, Received, Record, Undelivered
from fednode.core.types import PHASES, Json
from fednode.core.view import KernelView
from fednode.lab.sim.world import World
from fednode.lab.simulate.check import Check


@dataclass(slots=True)
class SaysOnlyText(Check):
    """Records hold printable text only and no defect, and so do status fields, whatever comes."""

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        """Check each record; check the status after a hostile node sent or answered something."""
        if name in self.liars:
            return
        records = [effect for effect in effects if isinstance(effect, Record)]
        for record in records:
            if record.cause is not None:
                raise self.broken(world, name, record.text) from record.cause
        texts = [
            text
            for record in records
            for text in (record.kind, record.text, *map(str, record.fields))
        ]
        if self._spoken_to(event):
            texts += shown(world.kernel(name).view())
        for text in texts:
            if not text.isprintable():
                raise self.broken(world, name, f"shows {text!r}")

    def _spoken_to(self, event: Event) -> bool:
        """Tell whether a hostile node sent a membership message, or failed to accept a message."""
        if isinstance(event, Received):
            return event.message.sender in self.liars and event.message.phase in PHASES
        return isinstance(event, Undelivered) and event.to in self.liars


def unsaid(world: World, names: Sequence[str]) -> str:
    """Name two nodes whose prompts differ after the same round without a report; else "".

    A node reports a difference in its status and in a record. Only `sync` requires that all nodes
    hold the same prompts.
    """
    states = {name: world.kernel(name).policy.state() for name in names}
    for node, other in permutations(names, 2):
        same_round = states[node].round == states[other].round
        if not same_round or states[node].digest == states[other].digest:
            continue
        said = other in world.kernel(node).view().apart and other in _told(world, node)
        if not said and _in_sync(world, node):
            return f"{node} does not say that {other} holds others after round {states[node].round}"
    return ""


def _in_sync(world: World, name: str) -> bool:
    kernel = world.kernel(name)
    return kernel.policy.shared_state and kernel.context.rounds.mode == "sync"


def _told(world: World, name: str) -> set[str]:
    """Return the peers that a node's records name as different."""
    records = (record for record in world.hosts[name].records if record.kind == DIFFERS)
    return {str(peer) for record in records for peer in cast("list[Json]", record.fields[PEERS])}


def shown(view: KernelView) -> Iterator[str]:
    """Yield all texts of a node's status."""
    yield from (view.life, view.phase, *view.metrics, *view.refused)
    for peer in view.peers:
        yield from (peer.name, peer.state, peer.reason, peer.address, peer.id)
