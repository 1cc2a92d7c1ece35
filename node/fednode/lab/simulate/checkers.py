"""Safety properties: what holds at every step of every honest node under any fault or attack.

Each checker is one promise. If a node breaks it, the checker raises Violation
(node/fednode/lab/simulate/check.py) with the values that it found. Checkers read events, effects
and what hosts hold; they know nothing of the inside of a policy. Checkers of the texts that people
read are in node/fednode/lab/simulate/speech.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from fednode.core import events as ev
from fednode.core.policy import RESEND_S
from fednode.core.rounds.catchup import QUESTIONS
from fednode.core.rounds.exchange import AGAIN
from fednode.core.types import PHASES, Phase, Tensors
from fednode.lab.sim.world import World
from fednode.lab.simulate.check import Check
from fednode.lab.simulate.moves import MovesByProof
from fednode.lab.simulate.older import OlderIsTrue
from fednode.lab.simulate.speech import SaysOnlyText


@dataclass(slots=True)
class ResumesWhereItWas(Check):
    """A node that restarts resumes from exactly the state that its disk holds."""

    def started(self, world: World, name: str) -> None:
        """Compare the policy's state with the durable state."""
        host = world.hosts[name]
        kernel, held = host.kernel, host.durable
        if kernel is not None and held is not None and kernel.policy.state() != held.policy:
            raise self.broken(world, name, "restarted with another state than it had stored")


@dataclass(slots=True)
class RoundsGoForward(Check):
    """Adopted rounds never fall, and go at most one beyond the newest honest round."""

    _newest: dict[str, int] = field(default_factory=dict)
    _furthest: int = 0  # of honest nodes, also of those whose disk was wiped since

    def started(self, world: World, name: str) -> None:
        """Set the node's newest round to the round on its disk."""
        held = world.hosts[name].durable
        self._newest[name] = held.policy.round if held else 0

    def stepped(
        self, world: World, name: str, event: ev.Event, effects: Sequence[ev.Effect]
    ) -> None:
        """Check the round of each snapshot that the node is about to adopt."""
        for effect in effects:
            if not isinstance(effect, ev.Adopt) or isinstance(event, ev.AdoptFailed):
                continue
            number, before = effect.snapshot.policy.round, self._newest.get(name, 0)
            if number < before or (number == before and not self._repeats(world, name, effect)):
                raise self.broken(world, name, f"adopts round {number} after round {before}")
            self._newest[name] = number
            if name in self.liars:
                continue
            if number > max(before, self._furthest) + 1:
                text = f"adopts round {number}; no honest node was beyond round {self._furthest}"
                raise self.broken(world, name, text)
            self._furthest = max(self._furthest, number)

    def _repeats(self, world: World, name: str, effect: ev.Adopt) -> bool:
        """Tell whether the node repeats a commit that failed."""
        held = world.hosts[name].durable
        return held is None or held.policy.round < effect.snapshot.policy.round


@dataclass(slots=True)
class AdoptsWhatIsSound(Check):
    """Adopted arrays are finite; adopted prompts are bounded and keep their initial shapes."""

    bound: float = 1e9
    _shapes: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)

    def started(self, world: World, name: str) -> None:
        """Record the shapes of the node's prompts."""
        kernel = world.hosts[name].kernel
        assert kernel is not None, "it was switched on"
        self._shapes[name] = kernel.policy.state().tensors.shapes

    def stepped(
        self, world: World, name: str, event: ev.Event, effects: Sequence[ev.Effect]
    ) -> None:
        """Check each snapshot that the node is about to adopt."""
        for effect in effects:
            if isinstance(effect, ev.Adopt) and name not in self.liars:
                policy = effect.snapshot.policy
                self._look(world, name, policy.tensors)
                if not (policy.tuned.finite() and policy.arrays.finite()):
                    raise self.broken(world, name, "adopts numbers that are not finite")

    def _look(self, world: World, name: str, tensors: Tensors) -> None:
        if not tensors.finite():
            raise self.broken(world, name, "adopts prompts that are not finite")
        if tensors.norm() > self.bound:
            raise self.broken(world, name, f"adopts prompts of norm {tensors.norm():.3g}")
        if tensors.shapes != self._shapes[name]:
            raise self.broken(world, name, f"adopts {tensors!r}, not {self._shapes[name]}")


@dataclass(slots=True)
class OneTuningAtATime(Check):
    """A node runs at most one tuning and one commit at a time."""

    _tuning: dict[str, bool] = field(default_factory=dict)
    _storing: dict[str, bool] = field(default_factory=dict)

    def started(self, world: World, name: str) -> None:
        """Record that no tuning and no commit is running."""
        self._tuning[name] = self._storing[name] = False

    def stepped(
        self, world: World, name: str, event: ev.Event, effects: Sequence[ev.Effect]
    ) -> None:
        """Track the begin and the end of tunings and commits."""
        if isinstance(event, ev.Tuned | ev.TuneFailed):
            self._tuning[name] = False
        if isinstance(event, ev.Adopted | ev.AdoptFailed):
            self._storing[name] = False
        for effect in effects:
            if isinstance(effect, ev.Tune):
                if self._tuning.get(name):
                    raise self.broken(world, name, "begins to tune while it tunes")
                self._tuning[name] = True
            elif isinstance(effect, ev.Adopt):
                if self._storing.get(name):
                    raise self.broken(world, name, "begins a commit while one is under way")
                self._storing[name] = True


@dataclass(slots=True)
class AnswersEachOnce(Check):
    """A node answers each message at most once, in the same step except for indirect pings."""

    _open: dict[str, set[int]] = field(default_factory=dict)

    def started(self, world: World, name: str) -> None:
        """Forget the messages that the node left unanswered before it restarted."""
        self._open[name] = set()

    def stepped(
        self, world: World, name: str, event: ev.Event, effects: Sequence[ev.Effect]
    ) -> None:
        """Match answers with received messages."""
        waiting = self._open.setdefault(name, set())
        if isinstance(event, ev.Received):
            waiting.add(event.token)
        for effect in effects:
            if isinstance(effect, ev.Answer):
                if effect.token not in waiting:
                    raise self.broken(world, name, f"answers {effect.token} again, or unasked")
                waiting.discard(effect.token)
        errand = isinstance(event, ev.Received) and event.message.phase == Phase.INDIRECT
        if isinstance(event, ev.Received) and event.token in waiting and not errand:
            raise self.broken(world, name, f"leaves a {event.message.phase!r} unanswered")


@dataclass(slots=True)
class SpeaksInItsName(Check):
    """A node sends in its own name, only to nodes of the mesh, and never to itself."""

    def stepped(
        self, world: World, name: str, event: ev.Event, effects: Sequence[ev.Effect]
    ) -> None:
        """Check the sender and the receiver of each message."""
        for effect in effects:
            if isinstance(effect, ev.Send):
                if effect.message.sender != name:
                    raise self.broken(world, name, f"speaks as {effect.message.sender}")
                if effect.to == name or effect.to not in world.hosts:
                    raise self.broken(world, name, f"sends to {effect.to!r}")


@dataclass(slots=True)
class TellsOnlyWhatIsStored(Check):
    """A node sends messages of a round only after it stored the round before."""

    def stepped(
        self, world: World, name: str, event: ev.Event, effects: Sequence[ev.Effect]
    ) -> None:
        """Compare the rounds of policy messages with the round on disk."""
        held = world.hosts[name].durable
        stored = held.policy.round if held else 0
        for effect in effects:
            if not isinstance(effect, ev.Send) or effect.message.phase in PHASES | QUESTIONS:
                continue
            if effect.message.round > stored + 1:
                text = f"tells of round {effect.message.round} and has stored round {stored}"
                raise self.broken(world, name, text)


@dataclass(slots=True)
class KeepsWithinBounds(Check):
    """Timers, unanswered messages and stored arrays of a node stay below fixed bounds."""

    TIMERS_MAX: Final = 200
    ANSWERS_MAX: Final = 500
    ARRAYS_MAX: Final = 200

    def stepped(
        self, world: World, name: str, event: ev.Event, effects: Sequence[ev.Effect]
    ) -> None:
        """Count timers, unanswered messages and arrays; check the delay of each new timer."""
        host = world.hosts[name]
        if len(host.timers) > self.TIMERS_MAX or len(host.answers) > self.ANSWERS_MAX:
            text = f"has {len(host.timers)} timers and {len(host.answers)} messages unanswered"
            raise self.broken(world, name, text)
        for effect in effects:
            if isinstance(effect, ev.SetTimer) and not 0 <= effect.delay_s < 1e7:
                raise self.broken(world, name, f"sets a timer of {effect.delay_s} s")
            if (
                isinstance(effect, ev.Adopt)
                and len(effect.snapshot.policy.arrays) > self.ARRAYS_MAX
            ):
                raise self.broken(world, name, "keeps more arrays than any mesh needs")


@dataclass(slots=True)
class HonestStayFree(Check):
    """No honest node quarantines another honest node."""

    def stepped(
        self, world: World, name: str, event: ev.Event, effects: Sequence[ev.Effect]
    ) -> None:
        """Check the peer that each quarantine record names."""
        for effect in effects:
            if not isinstance(effect, ev.Record) or effect.kind != "peer.quarantined":
                continue
            peer = effect.text.partition(" ")[0]
            if not {name, peer} & set(self.liars):
                raise self.broken(world, name, f"quarantined an honest node: {effect.text}")


@dataclass(slots=True)
class WaitsWithinDeadlines(Check):
    """A node waits for others at most one deadline per stage, and one more while it catches up."""

    SLACK_S: Final = 2.0
    _since: dict[str, float] = field(default_factory=dict)
    _said: dict[str, set[tuple[int, str]]] = field(default_factory=dict)

    def started(self, world: World, name: str) -> None:
        """Reset the node's waiting time."""
        self._since[name], self._said[name] = world.now, set()

    def stepped(
        self, world: World, name: str, event: ev.Event, effects: Sequence[ev.Effect]
    ) -> None:
        """Measure how long a policy waits for others without starting anything."""
        kernel = world.kernel(name)
        if name in self.liars or kernel.policy.phase != "exchanging" or self._begins(name, effects):
            self._since[name] = world.now
            return
        waited, limit = world.now - self._since[name], kernel.context.rounds.deadline_s
        if waited > 2 * limit + self.SLACK_S:
            raise self.broken(world, name, f"waits for others for {waited:.0f} s of {limit:g} s")

    def _begins(self, name: str, effects: Sequence[ev.Effect]) -> bool:
        """Tell whether the node starts a tuning, a commit or a stage."""
        stages = {
            (effect.message.round, effect.message.phase)
            for effect in effects
            if isinstance(effect, ev.Send)
            and effect.message.phase not in PHASES | QUESTIONS | {AGAIN}
        }
        fresh = stages - self._said[name]
        self._said[name] |= fresh
        return bool(fresh) or any(isinstance(effect, ev.Adopt | ev.Tune) for effect in effects)


@dataclass(slots=True)
class RepeatsItselfSlowly(Check):
    """A node sends a message of its policy to a peer at most twice in RESEND_S, whoever asks."""

    ROUNDING_S: Final = 1e-6
    _times: dict[str, dict[tuple[str, str, int, str], tuple[float, float]]] = field(
        default_factory=dict
    )

    def started(self, world: World, name: str) -> None:
        """Forget what the node sent before it restarted."""
        self._times[name] = {}

    def stepped(
        self, world: World, name: str, event: ev.Event, effects: Sequence[ev.Effect]
    ) -> None:
        """Compare the time of each contribution with those of the last two equal ones."""
        if name in self.liars:
            return
        for effect in effects:
            if not isinstance(effect, ev.Send) or effect.message.phase in PHASES | QUESTIONS:
                continue
            said, times = effect.message, self._times[name]
            key = effect.to, said.phase, said.round, said.tensors.digest
            before, last = times.get(key, (float("-inf"), float("-inf")))
            if world.now - before < RESEND_S - self.ROUNDING_S:
                text = f"sends {said.phase!r} of round {said.round} to {effect.to} too often"
                raise self.broken(world, name, text)
            times[key] = last, world.now


ALL: Final[tuple[type[Check], ...]] = (
    ResumesWhereItWas,
    RoundsGoForward,
    AdoptsWhatIsSound,
    OneTuningAtATime,
    AnswersEachOnce,
    SpeaksInItsName,
    TellsOnlyWhatIsStored,
    KeepsWithinBounds,
    HonestStayFree,
    MovesByProof,
    WaitsWithinDeadlines,
    RepeatsItselfSlowly,
    OlderIsTrue,
    SaysOnlyText,
)
"""All safety checkers; scenario.py judges what must hold once all faults have ended."""
