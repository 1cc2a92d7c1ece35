"""A host's side of one policy, for the contract: it feeds events and checks every effect."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np

from fednode.core import events as ev
from fednode.core.policy import NodeContext, Policy, PolicyKind
from fednode.core.rounds.catchup import ADOPTED, STATE, WANT
from fednode.core.settings import Barrier, GuardSettings, RoundSettings
from fednode.core.types import MEASURE, Message, PolicyState, Report, Tensors
from fednode.testing import frame
from fednode.testing.methods import Shapes, arrays_of

PEERS = ("b", "c", "d")
MODES: tuple[Barrier, ...] = ("async", "sync")


@dataclass(frozen=True, slots=True)
class Case:
    """One policy with one configuration.

    shapes: of all its arrays. says: the phases of its messages, and what each carries. sits_out:
    rounds in which node "a" is not drawn, so that it neither tunes nor sends.
    """

    kind: PolicyKind
    config: Any
    mode: Barrier
    shapes: Shapes
    says: Mapping[str, Shapes]
    guard: GuardSettings = field(default_factory=GuardSettings)
    sits_out: frozenset[int] = frozenset()

    @property
    def initial(self) -> Tensors:
        return arrays_of(self.shapes)

    def context(self) -> NodeContext:
        rounds = RoundSettings(mode=self.mode, max=12, deadline_s=60.0)
        return frame(
            self.kind.name, peers=PEERS, seed=5, rounds=rounds, domain="photo", guard=self.guard
        )

    def start(self) -> Policy:
        return self.kind.start(self.config, self.context(), self.initial)

    def player(self) -> Player:
        """Return a host of a policy that has just started."""
        return Player(self.start(), self.sits_out)

    def from_peer(self, peer: str, number: int, phase: str = "") -> Message:
        """Return a message of a peer, with the arrays that the phase has (the first one's)."""
        phase = phase or next(iter(self.says))
        drawn = np.random.default_rng(list(f"{peer} {number} {phase}".encode()))
        tensors = {
            name: drawn.integers(0, 200, shape).astype(np.float32)
            for name, shape in self.says.get(phase, {}).items()
        }
        return Message(
            mesh="m",
            fingerprint="f",
            policy=self.kind.name,
            sender=peer,
            round=number,
            phase=phase,
            tensors=Tensors(tensors),
        )

    def restore(self, state: PolicyState) -> Policy:
        return self.kind.restore(self.config, self.context(), state)


@dataclass(slots=True)
class Player:
    """The host's side of one policy: checks each effect and remembers what is under way."""

    policy: Policy
    sits_out: frozenset[int] = frozenset()
    tune: ev.Tune | None = None
    adopt: ev.Adopt | None = None
    sent: list[ev.Send] = field(default_factory=list)
    timers: dict[str, float] = field(default_factory=dict)
    effects: list[ev.Effect] = field(default_factory=list)

    def feed(self, event: ev.Event) -> list[ev.Effect]:
        """Hand an event on; check what comes of it."""
        match event:
            case ev.Tuned(job=job) | ev.TuneFailed(job=job) if self.tune and job == self.tune.job:
                self.tune = None
            case ev.Adopted():
                self.adopt = None
            case ev.TimerFired(name=name):
                self.timers.pop(name, None)
            case _:
                pass
        effects = list(self.policy.handle(0.0, event))
        for effect in effects:
            self._check(effect)
        self.effects += effects
        return effects

    def _check(self, effect: ev.Effect) -> None:
        assert isinstance(effect, get_args(ev.Effect))
        match effect:
            case ev.Tune():
                assert self.tune is None, "two tunings at a time"
                assert self.adopt is None, "a tuning before the last round is durable"
                self.tune = effect
            case ev.Adopt(snapshot=snapshot):
                assert self.adopt is None, "two commits at a time"
                assert self.tune is None, "a commit while tuning"
                assert snapshot.policy == self.policy.state()
                self.adopt = effect
            case ev.Send(to=peer, message=message):
                assert peer in PEERS
                assert (message.mesh, message.fingerprint, message.sender) == ("m", "f", "a")
                assert message.policy == self.policy.name
                assert message.tensors.finite()
                self.sent.append(effect)
            case ev.SetTimer(name=name, delay_s=delay):
                assert name.startswith("policy.")
                assert 0 < delay <= 60.0
                self.timers[name] = delay
            case ev.Record(text=text):
                assert text
            case _:
                pass

    def begin(self, number: int) -> None:
        """Let a round begin, and end its tuning well, if the node takes part in the round."""
        self.feed(ev.RoundDue(number))
        assert (self.tune is None) == (number in self.sits_out), f"round {number}: who is drawn?"
        if self.tune is not None:
            self.tuned()

    def tuned(self) -> list[ev.Effect]:
        """End the tuning well."""
        assert self.tune is not None
        return self.feed(ev.Tuned(self.tune.job, report(self.tune)))

    def adopted(self) -> list[ev.Effect]:
        """End the commit well."""
        assert self.adopt is not None
        return self.feed(ev.Adopted(self.adopt.snapshot))

    def train(self) -> None:
        """End every tuning that comes at once, without a timer."""
        while self.tune is not None:
            self.tuned()

    def wait_out(self) -> None:
        """Tune, and let every timer run out, until the round is up for adoption."""
        for _ in range(20):
            self.train()
            if self.adopt is not None:
                return
            assert self.timers, "it waits, and nothing will ever end that"
            for name in sorted(self.timers):
                self.feed(ev.TimerFired(name))
        raise AssertionError("the round does not end")

    def run_round(self, number: int, hear: Sequence[Message] = ()) -> None:
        """Carry a round through with what peers say meanwhile."""
        self.begin(number)
        self._hear(hear)
        self.wait_out()
        self.adopted()

    def run_stages(self, number: int, case: Case) -> None:
        """Carry a round through in which all peers contribute to each stage as the node does."""
        self.begin(number)
        for at, phase in enumerate(case.says):
            self.train()
            own = [send for send in self.sent if send.message.round == number]
            same = [send for send in own if send.message.phase == phase]
            if same or at == 0:
                given = [case.from_peer(peer, number, phase) for peer in PEERS]
                began = same[0].message.base if same else ""
                self._hear([replace(message, base=began) for message in given])
            for send in same:
                self.feed(ev.Delivered(send.to, send.message))
        self.wait_out()
        self.adopted()

    def _hear(self, messages: Sequence[Message]) -> None:
        for message in accepted(self.policy, messages):
            self.feed(ev.Received(message))


def report(tune: ev.Tune) -> Report:
    """Return what a learner would: prompts that depend on the job alone."""
    job = tune.job
    if job.stage == MEASURE:
        loss = int(job.tensors.digest[:4], 16) / 2**16
        return Report(
            tensors=job.tensors, metrics={"validation": 0.5, "validation_loss": loss}, samples=8
        )
    moved = {name: array + np.float32(job.seed % 97 / 97.0) for name, array in job.tensors.items()}
    carry = Tensors({"momentum": [float(job.round)]})
    return Report(
        tensors=Tensors(moved),
        metrics={"loss": 1.0},
        samples=8,
        carry=carry,
        changed=tuple(sorted(moved)),
    )


def accepted(policy: Policy, messages: Sequence[Message]) -> list[Message]:
    """Return the messages that the kernel's gate would let through to this policy."""
    return [message for message in messages if not policy.fault(message)]


def any_event(case: Case, chance: random.Random, player: Player) -> ev.Event:
    """Return any event at all, likely or not, true or stale."""
    peer, number = chance.choice(PEERS), chance.randrange(0, 6)
    message = case.from_peer(peer, number, chance.choice([*case.says, "nonsense"]))
    snapshot = player.adopt.snapshot if player.adopt else None
    makers: list[Callable[[], ev.Event]] = [
        lambda: ev.PeerUp(peer),
        lambda: ev.PeerDown(peer),
        lambda: ev.Claimed(peer, number, chance.choice(["ab" * 32, player.policy.state().digest])),
        lambda: ev.TimerFired(chance.choice(["policy.deadline", "policy.resend", "policy.x"])),
        lambda: ev.Stopping(),
        lambda: ev.RoundDue(player.policy.round + 1),
    ]
    if not player.policy.fault(message):
        makers += [lambda: ev.Received(message)] * 3
    if player.sent:
        send = chance.choice(player.sent)
        makers += [lambda: ev.Delivered(send.to, send.message)]
        makers += [lambda: ev.Undelivered(send.to, send.message, "unreachable", "nobody")]
    if player.tune is not None:
        job = player.tune.job
        stale = replace(job, seed=job.seed + 1)
        made = report(player.tune)
        makers += [lambda: ev.Tuned(job, made), lambda: ev.TuneFailed(job, "no memory")]
        makers += [lambda: ev.Tuned(stale, made)]
    if snapshot is not None:
        makers += [lambda: ev.Adopted(snapshot)] * 2
    return chance.choice(makers)()


def far_event(case: Case, chance: random.Random, player: Player) -> ev.Event:
    """Return an event of a mesh whose members claim any round and state, with arrays and without.

    All who lie give and claim the same state. The host's own events are frequent, so that rounds
    end.
    """
    if player.adopt is not None:
        return ev.Adopted(player.adopt.snapshot)
    if player.tune is not None and chance.random() < 0.5:
        return ev.Tuned(player.tune.job, report(player.tune))
    if player.policy.activity == "idle" and chance.random() < 0.5:
        return ev.RoundDue(player.policy.round + 1)
    if chance.random() < 0.1:
        return ev.TimerFired(chance.choice(sorted({"policy.deadline", *player.timers})))
    if chance.random() < 0.1:
        peer = chance.choice(PEERS)
        return ev.PeerUp(peer) if chance.random() < 0.7 else ev.PeerDown(peer)
    number = player.policy.round + chance.choice([0, 1, 2, 3, 5, 10**9])
    message = case.from_peer(chance.choice(PEERS), number, chance.choice([*case.says]))
    zero = {name: 0 * array for name, array in message.tensors.items()}
    message = replace(message, tensors=Tensors(zero if chance.random() < 0.8 else {}))
    asked = {send.message.phase: send for send in player.sent}
    if STATE in asked and WANT in asked and chance.random() < 0.5:
        state = asked[STATE].message.tensors
        if chance.random() < 0.5:
            return ev.Claimed(message.sender, number, state.digest)
        facts = {ADOPTED: str(number)}
        giver = asked[WANT].to
        message = replace(message, sender=giver, phase=STATE, tensors=state, facts=facts)
    return ev.TimerFired("policy.x") if player.policy.fault(message) else ev.Received(message)


def up(player: Player, peers: Sequence[str] = PEERS) -> Player:
    """Tell a policy that peers are live; return its player."""
    for peer in peers:
        player.feed(ev.PeerUp(peer))
    return player
