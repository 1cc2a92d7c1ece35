"""What every policy promises (node/core/policy.py), as tests to inherit.

The driver below plays the host: it feeds a policy events, checks every effect as it comes, and
answers Tune, Adopt and Send as a host would. Nothing here knows which policy it is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np
import pytest

from node.core.events import (
    Adopt,
    Adopted,
    AdoptFailed,
    Delivered,
    Effect,
    Event,
    PeerDown,
    PeerUp,
    Received,
    Record,
    RoundDue,
    Send,
    SetTimer,
    Stopping,
    TimerFired,
    Tune,
    Tuned,
    TuneFailed,
    Undelivered,
)
from node.core.policy import Context, Policy
from node.core.settings import Barrier, RoundSettings
from node.core.types import Message, PolicyState, Report, Tensors

PEERS = ("b", "c", "d")
INITIAL = Tensors({"context": np.arange(8.0).reshape(4, 2)})
MODES: tuple[Barrier, ...] = ("async", "quorum", "sync")
PHASES = ("prompts", "answer", "want", "done", "nonsense")


@dataclass(frozen=True, slots=True)
class Case:
    """One policy with one configuration."""

    kind: type[Policy]
    config: Any
    mode: Barrier

    def context(self) -> Context:
        rounds = RoundSettings(mode=self.mode, max=12, quorum=3, deadline_s=60.0)
        return Context("a", PEERS, "m", self.kind.name, "f", 5, rounds, 8)

    def start(self) -> Policy:
        return self.kind.start(self.config, self.context(), INITIAL)

    def restore(self, state: PolicyState) -> Policy:
        return self.kind.restore(self.config, self.context(), state)


@dataclass(slots=True)
class Player:
    """The host's side of one policy: checks each effect and remembers what is under way."""

    policy: Policy
    tune: Tune | None = None
    adopt: Adopt | None = None
    sent: list[Send] = field(default_factory=list)
    timers: dict[str, float] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)

    def feed(self, event: Event) -> list[Effect]:
        """Hand an event on; check what comes of it."""
        match event:
            case Tuned(job=job) | TuneFailed(job=job) if self.tune and job == self.tune.job:
                self.tune = None
            case Adopted():
                self.adopt = None
            case TimerFired(name=name):
                self.timers.pop(name, None)
            case _:
                pass
        effects = list(self.policy.handle(0.0, event))
        for effect in effects:
            self._check(effect)
        self.effects += effects
        return effects

    def _check(self, effect: Effect) -> None:
        assert isinstance(effect, get_args(Effect))
        match effect:
            case Tune():
                assert self.tune is None, "two tunings at a time"
                assert self.adopt is None, "a tuning before the last round is durable"
                self.tune = effect
            case Adopt(snapshot=snapshot):
                assert self.adopt is None, "two commits at a time"
                assert self.tune is None, "a commit while tuning"
                assert snapshot.policy == self.policy.state()
                self.adopt = effect
            case Send(to=peer, message=message):
                assert peer in PEERS
                assert (message.mesh, message.fingerprint, message.sender) == ("m", "f", "a")
                assert message.policy == self.policy.name
                assert message.tensors.finite()
                self.sent.append(effect)
            case SetTimer(name=name, delay_s=delay):
                assert name.startswith("policy.")
                assert 0 < delay <= 60.0
                self.timers[name] = delay
            case Record(text=text):
                assert text
            case _:
                pass

    def tuned(self) -> list[Effect]:
        """End the tuning well."""
        assert self.tune is not None
        return self.feed(Tuned(self.tune.job, report(self.tune)))

    def adopted(self) -> list[Effect]:
        """End the commit well."""
        assert self.adopt is not None
        return self.feed(Adopted(self.adopt.snapshot))

    def wait_out(self) -> None:
        """Let every timer run out until the round is up for adoption."""
        for _ in range(20):
            if self.adopt is not None:
                return
            assert self.timers, "it waits, and nothing will ever end that"
            for name in sorted(self.timers):
                self.feed(TimerFired(name))
        raise AssertionError("the round does not end")

    def run_round(self, number: int, hear: Sequence[Message] = ()) -> None:
        """Carry a round through with what peers say meanwhile."""
        self.feed(RoundDue(number))
        self.tuned()
        for message in hear:
            self.feed(Received(message))
        self.wait_out()
        self.adopted()


def report(tune: Tune) -> Report:
    """Return what a learner would: prompts that depend on the job alone."""
    start = tune.job.tensors["context"]
    moved = start + np.float32(tune.job.seed % 97 / 97.0)
    carry = Tensors({"momentum": [float(tune.job.round)]})
    return Report(Tensors({"context": moved}), {"loss": 1.0}, 8, carry)


def from_peer(policy: Policy, peer: str, number: int, phase: str = "prompts") -> Message:
    """Return a message of a peer, with rows where the phase has them."""
    digest = hashlib.sha256(f"{peer} {number}".encode()).digest()
    rows = np.frombuffer(digest[:8], dtype=np.uint8).astype(np.float32).reshape(4, 2)
    tensors = Tensors({"context": rows}) if phase in {"prompts", "answer"} else Tensors()
    return Message("m", "f", policy.name, peer, number, phase, tensors)


def accepted(policy: Policy, messages: Sequence[Message]) -> list[Message]:
    """Return the messages that the kernel's gate would let through to this policy."""
    return [one for one in messages if not policy.fault(one)]


def any_event(chance: random.Random, player: Player) -> Event:
    """Return any event at all, likely or not, true or stale."""
    peer, number = chance.choice(PEERS), chance.randrange(0, 6)
    message = from_peer(player.policy, peer, number, chance.choice(PHASES))
    snapshot = player.adopt.snapshot if player.adopt else None
    makers: list[Callable[[], Event]] = [
        lambda: PeerUp(peer),
        lambda: PeerDown(peer),
        lambda: TimerFired(chance.choice(["policy.deadline", "policy.resend", "policy.x"])),
        lambda: Stopping(),
        lambda: RoundDue(player.policy.state().round + 1),
    ]
    if not player.policy.fault(message):
        makers += [lambda: Received(message)] * 3
    if player.sent:
        send = chance.choice(player.sent)
        makers += [lambda: Delivered(send.to, send.message)]
        makers += [lambda: Undelivered(send.to, send.message, "unreachable", "nobody")]
    if player.tune is not None:
        job = player.tune.job
        stale = replace(job, seed=job.seed + 1)
        made = report(player.tune)
        makers += [lambda: Tuned(job, made), lambda: TuneFailed(job, "no memory")]
        makers += [lambda: Tuned(stale, made)]
    if snapshot is not None:
        makers += [lambda: Adopted(snapshot)] * 2
    return chance.choice(makers)()


def up(player: Player, peers: Sequence[str] = PEERS) -> Player:
    for peer in peers:
        player.feed(PeerUp(peer))
    return player


class PolicyContract:
    """Inherit and give a fixture `case`."""

    def test_it_names_itself(self, case: Case) -> None:
        kind = case.kind
        assert kind.name
        assert kind.default_mode in MODES
        assert isinstance(kind.shared_state, bool)
        assert isinstance(kind.repeatable, frozenset)
        assert dataclasses.is_dataclass(kind.config_type)
        assert case.start().state() == PolicyState(0, INITIAL, Tensors(), data=initial_data(case))
        assert case.start().phase == "idle"

    @pytest.mark.parametrize("seed", range(20))
    def test_total_and_orderly_in_any_order_of_events(self, case: Case, seed: int) -> None:
        chance = random.Random(seed)
        player = Player(case.start())
        for _ in range(300):
            player.feed(any_event(chance, player))
            assert player.policy.phase in {"idle", "tuning", "exchanging", "adopting"}

    @pytest.mark.parametrize("seed", range(5))
    def test_pure_equal_events_give_equal_effects_and_states(self, case: Case, seed: int) -> None:
        one, two = Player(case.start()), Player(case.start())
        chance = random.Random(seed)
        for step in range(200):
            event = any_event(chance, one)
            random.seed(step)  # the global generator has no say
            assert one.feed(event) == two.feed(event)
            assert one.policy.state() == two.policy.state()

    def test_a_state_that_was_returned_never_changes(self, case: Case) -> None:
        player = up(Player(case.start()))
        player.run_round(1, accepted(player.policy, [from_peer(player.policy, "b", 1)]))
        before = player.policy.state()
        copied = PolicyState(
            before.round,
            before.tensors,
            before.tuned,
            before.carry,
            {key: repr(value) for key, value in before.data.items()},
            before.arrays,
        )
        for number in (2, 3):
            heard = [from_peer(player.policy, peer, number) for peer in PEERS]
            player.run_round(number, accepted(player.policy, heard))
        assert {key: repr(value) for key, value in before.data.items()} == dict(copied.data)
        assert (before.round, before.tensors) == (copied.round, copied.tensors)

    def test_rounds_end_whatever_peers_do(self, case: Case) -> None:
        """Silent peers, lost messages and deaths cost time, never the round."""
        player = up(Player(case.start()))
        for number in range(1, 5):
            before = len(player.sent)
            player.feed(RoundDue(number))
            player.tuned()
            for send in player.sent[before:]:
                if player.adopt is None:
                    lost = Undelivered(send.to, send.message, "unreachable", "nobody")
                    player.feed(lost)
            player.wait_out()
            player.adopted()
            assert player.policy.state().round == number

    def test_alone_a_round_needs_no_timer(self, case: Case) -> None:
        player = Player(case.start())
        player.feed(RoundDue(1))
        player.tuned()
        assert player.adopt is not None
        player.adopted()
        assert player.policy.phase == "idle"
        assert player.policy.state().tuned == player.policy.state().tensors

    def test_the_death_of_all_peers_ends_the_waiting(self, case: Case) -> None:
        player = up(Player(case.start()))
        player.feed(RoundDue(1))
        player.tuned()
        for peer in PEERS:
            player.feed(PeerDown(peer))
        assert player.adopt is not None

    def test_a_round_adopts_its_tuned_prompts_and_its_carry(self, case: Case) -> None:
        player = up(Player(case.start()))
        player.feed(RoundDue(1))
        assert player.tune is not None
        expected = report(player.tune)
        player.tuned()
        player.wait_out()
        assert player.adopt is not None
        stored = player.adopt.snapshot
        assert stored.policy.tuned == expected.tensors
        assert stored.policy.carry == expected.carry
        assert stored.metrics == expected.metrics

    def test_a_failed_tuning_changes_nothing_and_the_round_can_be_run_again(
        self, case: Case
    ) -> None:
        player = up(Player(case.start()))
        player.feed(RoundDue(1))
        assert player.tune is not None
        first = player.tune.job
        before = player.policy.state()
        player.feed(TuneFailed(first, "no memory"))
        assert player.policy.phase == "idle"
        assert player.policy.state() == before
        player.feed(RoundDue(1))
        assert player.tune.job == first

    def test_a_failed_commit_leaves_it_waiting_for_the_next_try(self, case: Case) -> None:
        player = up(Player(case.start()))
        player.feed(RoundDue(1))
        player.tuned()
        player.wait_out()
        assert player.adopt is not None
        snapshot = player.adopt.snapshot
        assert player.feed(AdoptFailed(snapshot, "the disk is full")) == []
        assert player.policy.phase == "adopting"
        assert player.feed(RoundDue(2)) == []
        player.feed(Adopted(snapshot))
        assert player.policy.phase == "idle"

    def test_a_rollback_starts_from_what_it_is_given(self, case: Case) -> None:
        player = Player(case.start())
        other = Tensors({"context": -np.ones((4, 2))})
        player.feed(RoundDue(1, other))
        assert player.tune is not None
        assert player.tune.job.tensors == other

    def test_timers_of_an_earlier_round_do_nothing(self, case: Case) -> None:
        player = up(Player(case.start()))
        names: set[str] = set()
        for number in (1, 2):
            player.feed(RoundDue(number))
            player.tuned()
            names |= set(player.timers)
            player.wait_out()
            player.adopted()
        before = player.policy.state()
        for name in sorted(names | {"policy.never-set"}):
            assert not [one for one in player.feed(TimerFired(name)) if not isinstance(one, Send)]
        assert player.policy.state() == before
        player.feed(RoundDue(3))
        for name in sorted(names):
            assert not [one for one in player.feed(TimerFired(name)) if isinstance(one, Adopt)]

    @pytest.mark.parametrize("died_after", [1, 2, 3])
    def test_restart_faithful(self, case: Case, died_after: int) -> None:
        """A node restored from what it adopted does what the one that never stopped does."""
        original = up(Player(case.start()))
        for number in range(1, died_after + 1):
            heard = [from_peer(original.policy, peer, number) for peer in PEERS]
            original.run_round(number, accepted(original.policy, heard))
            for send in original.sent:
                if send.message.round == number:
                    original.feed(Delivered(send.to, send.message))
        # What was heard after the commit is lost with the crash: store once more, then compare.
        number = died_after + 1
        original.run_round(number)
        again = up(Player(case.restore(original.policy.state())))
        assert again.policy.state() == original.policy.state()
        for later in (number + 1, number + 2):
            marks = len(original.effects), len(again.effects)
            heard = accepted(original.policy, [from_peer(original.policy, p, later) for p in PEERS])
            original.run_round(later, heard)
            again.run_round(later, heard)
            assert original.effects[marks[0] :] == again.effects[marks[1] :]
            assert original.policy.state() == again.policy.state()

    def test_its_own_messages_pass_its_own_check(self, case: Case) -> None:
        player = up(Player(case.start()))
        for number in (1, 2, 3):
            player.run_round(number)
        assert all(not player.policy.fault(send.message) for send in player.sent)

    def test_what_is_no_message_of_it_has_a_sentence(self, case: Case) -> None:
        policy = case.start()
        assert policy.fault(from_peer(policy, "b", 1, "nonsense"))
        wrong = Message("m", "f", policy.name, "b", 1, "prompts", Tensors({"context": [[1.0]]}))
        assert policy.fault(wrong)

    def test_equal_runs_of_nodes_with_other_names_draw_otherwise(self, case: Case) -> None:
        context = case.context()
        assert context.draw_seed(1, "x") != replace(context, name="z").draw_seed(1, "x")
        assert context.draw_seed(1, "x") != context.draw_seed(2, "x")
        assert context.draw_seed(1, "x") != context.draw_seed(1, "y")


def initial_data(case: Case) -> Any:
    """A policy's own data are its business; equal for equal starts."""
    return case.start().state().data
