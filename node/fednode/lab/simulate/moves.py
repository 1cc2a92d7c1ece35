"""Checks how far a node moves: only as far as most members prove that they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from fednode.core import events as ev
from fednode.core.members.table import GONE
from fednode.core.rounds.catchup import STATE, adopted_round
from fednode.core.rounds.exchange import participants, period
from fednode.core.types import PHASES, Message
from fednode.lab.sim.world import World
from fednode.lab.simulate.check import Check


@dataclass(slots=True)
class MovesByProof(Check):
    """A node's round and its state move only as far as most members prove that they are.

    The record "round.taken" names a state that the node took over. Its supporters are the peers
    that gave that state, or said in a message of the kernel or in a contribution that they hold it
    (node/fednode/core/rounds/catchup.py). Where a node leaves out rounds, the supporters are the
    peers that sent a contribution to the round before the one that it adopts, or to a later one.
    They must be more than half of all members that began and that the node knew of since it adopted
    last. Half is enough if the node, since it adopted last,
    saw no other member alive and active (node/fednode/core/run.py). In a mesh of two nodes
    the other is enough.
    After a drift, nodes may agree on merged prompts ("round.mended"); that moves no round and is
    not judged, and a state after the round before may be taken over from half of all members. A
    node that restarts may use contributions that it had heard at its last commit.
    """

    _heard: dict[str, dict[str, int]] = field(default_factory=dict)
    _stored: dict[str, dict[str, int]] = field(default_factory=dict)  # as heard at the last commit
    _states: dict[str, dict[tuple[int, str], set[str]]] = field(default_factory=dict)
    _newest: dict[str, int] = field(default_factory=dict)
    _fewest: dict[str, int] = field(default_factory=dict)  # alive and active since the last Adopt
    _known: dict[str, int] = field(default_factory=dict)  # fewest since the last Adopt
    _inactive: dict[str, set[str]] = field(default_factory=dict)  # peers, as they say

    def started(self, world: World, name: str) -> None:
        """Forget the contributions that the node heard after its last commit."""
        held = world.hosts[name].durable
        self._newest[name] = held.policy.round if held else 0
        self._heard[name] = dict(self._stored.get(name, {})) if held else {}
        self._states[name], self._inactive[name] = {}, set()
        self._fewest[name] = self._alive(world, name)
        self._known[name] = self._members(world, name)

    def stepped(
        self, world: World, name: str, event: ev.Event, effects: Sequence[ev.Effect]
    ) -> None:
        """Record what peers send; check each state taken over and each round adopted."""
        if name in self.liars:
            return
        if isinstance(event, ev.Received):
            self._hear(name, event.message)
        refused = isinstance(event, ev.Undelivered) and event.code == "refused"
        if effects and (refused or not isinstance(event, ev.Delivered | ev.Undelivered)):
            self._fewest[name] = min(self._fewest[name], self._alive(world, name))
        for effect in effects:
            if isinstance(effect, ev.Record) and effect.kind == "round.taken":
                number, digest = effect.fields["round"], effect.fields["digest"]
                assert isinstance(number, int)
                assert isinstance(digest, str)
                voices = self._states[name].get((number, digest), ())
                self._judge(world, name, effect.text, voices, number > self._newest[name])
            elif isinstance(effect, ev.Adopt):
                self._stored[name] = dict(self._heard[name])
                self._adopted(world, name, effect.snapshot.policy.round)
        if isinstance(event, ev.Adopted):
            self._fewest[name] = self._alive(world, name)
            self._known[name] = self._members(world, name)

    def _hear(self, name: str, message: Message) -> None:
        heard, states = self._heard[name], self._states[name]
        if message.active:
            self._inactive[name].discard(message.sender)
        else:
            self._inactive[name].add(message.sender)
        if message.phase == STATE:
            key = adopted_round(message), message.tensors.digest
        else:
            if message.tensors:
                heard[message.sender] = max(message.round, heard.get(message.sender, 0))
            key = message.round - (message.phase not in PHASES), message.contributors
        states.setdefault(key, set()).add(message.sender)

    def _adopted(self, world: World, name: str, number: int) -> None:
        before, self._newest[name] = self._newest[name], number
        most = world.kernel(name).context.rounds.max
        if number <= before + 1:
            return
        if 0 < most < number:
            raise self.broken(world, name, f"goes to round {number} of {most} by others' claims")
        proved = number - self._slack(world, name)
        beyond = [peer for peer, at in self._heard[name].items() if at >= proved]
        self._judge(world, name, f"goes to round {number} after {before}", beyond, True)

    def _members(self, world: World, name: str) -> int:
        """Return how many members the node knows, itself included, without those that are gone."""
        peers = world.kernel(name).view().peers
        return 1 + sum(peer.state not in GONE for peer in peers)

    def _alive(self, world: World, name: str) -> int:
        """Return how many peers the node sees alive and active."""
        seen, inactive = world.kernel(name).view().peers, self._inactive[name]
        return sum(peer.state == "alive" and peer.name not in inactive for peer in seen)

    def _slack(self, world: World, name: str) -> int:
        """Return how many rounds may pass until each member contributes once more."""
        method = getattr(world.kernel(name).policy, "method", None)
        return period(len(world.hosts), participants(getattr(method, "config", None)))

    def _judge(
        self, world: World, name: str, what: str, voices: Collection[str], moves: bool
    ) -> None:
        began = sum(host.boot > 0 for host in world.hosts.values())
        count, every = len(voices), min(self._known[name], began)
        half = 2 * count >= every and (not moves or 2 * self._fewest[name] <= every)
        if not (half or 2 * count > every or (every == 2 and count)):
            text = f"moves by the word of {count} of {every} members: {what}"
            raise self.broken(world, name, text)
