"""What a node says and does about an older state (node/fednode/core/starts.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fednode.core.events import Commanded, Effect, Event, Record, Send, Tune
from fednode.core.starts import COPIED, OLDER
from fednode.core.types import MEASURE, PHASES
from fednode.lab.sim.world import World
from fednode.lab.simulate.check import Check


@dataclass(slots=True)
class OlderIsTrue(Check):
    """A node says that its state is older only if its disk has lost a round that it had stored.

    What counts is what the disk had lost when the node was switched on. Until its operator decides,
    also after a restart, the node sends no message of its policy and begins no round. A round that
    is under way may end: it begins when the node measures what it adopted, unless the node is
    paused by then.
    """

    _newest: Counter[str] = field(default_factory=Counter)  # the newest round that was stored
    _lost: dict[str, bool] = field(default_factory=dict)  # whether it had, when it was switched on
    _waits: dict[str, bool] = field(default_factory=dict)  # for its operator, after its last step
    _begun: Counter[str] = field(default_factory=Counter)  # the last round under way

    def started(self, world: World, name: str) -> None:
        """Note whether the node has all its rounds as it starts, and whether it waits."""
        held = world.hosts[name].durable
        self._lost[name] = self._newest[name] > (0 if held is None else held.policy.round)
        self._waits[name] = bool(world.hosts[name].account.undecided)

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        """Note what is stored; check what the node says, and that it waits where it must."""
        held = world.hosts[name].durable
        self._newest[name] = max(self._newest[name], 0 if held is None else held.policy.round)
        accepts = isinstance(event, Commanded) and event.command == "resume --older-state"
        before = self._waits.get(name, False) and not accepts
        waits = self._waits[name] = bool(world.kernel(name).older.undecided)
        if before and not waits:
            raise self.broken(world, name, "speaks again, and its operator has not decided")
        for one in effects:
            if isinstance(one, Tune):
                trains = one.job.stage != MEASURE
                if before and trains and one.job.round > self._begun[name]:
                    text = f"begins round {one.job.round}, and its operator has not decided"
                    raise self.broken(world, name, text)
                if trains or not before:
                    self._begun[name] = one.job.round
            if isinstance(one, Record) and one.kind in {OLDER, COPIED}:
                self._judge(world, name, one)
            if waits and isinstance(one, Send) and one.message.phase not in PHASES:
                raise self.broken(world, name, "speaks while its operator has not decided")

    def _judge(self, world: World, name: str, said: Record) -> None:
        peer = said.fields.get("peer", name)
        if name in self.liars or peer in self.liars:
            return
        if said.kind == COPIED:
            raise self.broken(world, name, f"names a peer of one process: {said.text}")
        if not self._lost[name]:
            raise self.broken(world, name, f"lost nothing, and says: {said.text}")


def decide(world: World) -> None:
    """Let the operator of each node that waits for a decision accept its state."""
    for name, host in world.hosts.items():
        if host.kernel is not None and host.kernel.older.undecided:
            world.command(name, "resume --older-state")
