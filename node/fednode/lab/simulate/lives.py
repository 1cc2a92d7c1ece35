"""Promises on a node's life (node/fednode/core/lives.py): no lie silences it, nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fednode.core.events import Commanded, Effect, Event, Record, Send, Tune
from fednode.core.lives import OLDER, TWICE
from fednode.core.members.phases import PHASES
from fednode.core.types import MEASURE
from fednode.lab.sim.world import World
from fednode.lab.simulate.check import Check


@dataclass(slots=True)
class LivesAreTrue(Check):
    """A node says that its key has spoken elsewhere only where its disk lost releases.

    What counts is what its disk had lost when it was switched on: what the node releases later is
    no loss. While its operator has not decided, also after a restart, it sends no message of its
    policy and begins no round. One that is under way may end: it begins when the node measures what
    it adopted, unless the node is silent by then.
    """

    _released: Counter[str] = field(default_factory=Counter)
    _lost: dict[str, bool] = field(default_factory=dict)  # whether it had, when it was switched on
    _silent: dict[str, bool] = field(default_factory=dict)  # after its last step
    _begun: Counter[str] = field(default_factory=Counter)  # the last round under way

    def started(self, world: World, name: str) -> None:
        """Note whether the node knows of all its releases as it starts, and whether it is silent.

        An empty disk forgets that the node was silent; the disk with its privacy account does not.
        """
        host = world.hosts[name]
        durable = 0 if host.durable is None else host.durable.released
        self._lost[name] = self._released[name] > max(durable, host.past.released)
        self._silent[name] = bool(host.past.undecided)

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        """Count releases; check what the node says, and that it is silent where it must be."""
        accepts = isinstance(event, Commanded) and event.command == "accept"
        before = self._silent.get(name, False) and not accepts
        silent = self._silent[name] = bool(world.kernel(name).lives.undecided)
        if before and not silent:
            raise self.broken(world, name, "speaks again, and its operator has not decided")
        for one in effects:
            if isinstance(one, Tune):
                trains = one.job.stage != MEASURE
                self._released[name] += trains
                if before and trains and one.job.round > self._begun[name]:
                    text = f"begins round {one.job.round}, and its operator has not decided"
                    raise self.broken(world, name, text)
                if trains or not before:
                    self._begun[name] = one.job.round
            if isinstance(one, Record) and one.kind in {OLDER, TWICE}:
                self._judge(world, name, one)
            if silent and isinstance(one, Send) and one.message.phase not in PHASES:
                raise self.broken(world, name, "speaks while its operator has not decided")

    def _judge(self, world: World, name: str, said: Record) -> None:
        peer = said.fields.get("peer", name)
        if name in self.liars or peer in self.liars:
            return
        if peer != name:
            raise self.broken(world, name, f"names a peer of one process: {said.text}")
        if not self._lost[name]:
            raise self.broken(world, name, f"lost nothing, and says: {said.text}")


def decide(world: World) -> None:
    """Let the operator of each node that waits for a decision accept its state."""
    for name, host in world.hosts.items():
        if host.kernel is not None and host.kernel.lives.undecided:
            world.command(name, "accept")


def unfound(world: World, honest: Sequence[str]) -> str:
    """Return which node does not count releases that an honest peer knows of; "" if none."""
    for peer in honest:
        known = world.kernel(peer).lives.known
        for name in honest:
            own, mark = world.kernel(name).lives.released, None if name == peer else known(name)
            if mark is not None and mark.released > own:
                return (
                    f"{name} counts {own} releases, and {peer} knows of {mark.released} "
                    f"until round {mark.round}"
                )
    return ""
