"""What honest nodes say to people, and what they may not keep from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from node.core.events import Effect, Event, Received, Record, Undelivered
from node.core.kernel import KernelView
from node.core.swim import PHASES
from node.sim.check import Check
from node.sim.world import World


@dataclass(slots=True)
class SaysOnlyText(Check):
    """No control character is in a record or a status field, whatever a member says."""

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        """Look at each record, and at the status after what a hostile node said or answered."""
        if name in self.liars:
            return
        records = [one for one in effects if isinstance(one, Record)]
        texts = [text for one in records for text in (one.kind, one.text, *map(str, one.fields))]
        if self._spoken_to(event):
            texts += shown(world.kernel(name).view())
        for text in texts:
            if not text.isprintable():
                raise self.broken(world, name, f"shows {text!r}")

    def _spoken_to(self, event: Event) -> bool:
        """Tell whether a hostile node spoke of members, or turned something down."""
        if isinstance(event, Received):
            return event.message.sender in self.liars and event.message.phase in PHASES
        return isinstance(event, Undelivered) and event.to in self.liars


def shown(view: KernelView) -> Iterator[str]:
    """Yield all texts of a node's status."""
    yield from (view.life, view.phase, *view.metrics, *view.refused)
    for peer in view.peers:
        yield from (peer.name, peer.state, peer.reason, peer.address, peer.id)
