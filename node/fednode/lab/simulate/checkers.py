"""Safety properties: what holds at every step of every honest node under any fault or attack.

Each checker is one promise. If a node breaks it, the checker raises Violation with the values that
it found. Checkers read events, effects and what hosts hold; they know nothing of the inside of a
policy. scenario.py judges what must hold once all faults have ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Final, TypeVar, cast

from fednode.core import events as ev
from fednode.core.agreement import DIFFERS, PEERS
from fednode.core.events import Effect, Event
from fednode.core.members.table import GONE
from fednode.core.policy import RESEND_S
from fednode.core.rounds.catchup import QUESTIONS, STATE, adopted_round
from fednode.core.rounds.exchange import AGAIN, participants, period
from fednode.core.starts import COPIED, OLDER
from fednode.core.types import MEASURE, PHASES, Json, Message, Phase
from fednode.core.view import KernelView
from fednode.lab.sim.world import Checker, World

Kind = TypeVar("Kind", bound=Effect)


def of(kind: type[Kind], effects: Sequence[Effect]) -> Iterator[Kind]:
    return (effect for effect in effects if isinstance(effect, kind))


def policy_messages(effects: Sequence[Effect]) -> Iterator[ev.Send]:
    """Yield what a node sends of its policy, neither of membership nor of catching up."""
    return (one for one in of(ev.Send, effects) if one.message.phase not in PHASES | QUESTIONS)


class Violation(AssertionError):
    """A node broke a promise. checker: the name of the checker that found it."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(checker, text)
        self.checker = checker

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.args[1]}"


@dataclass(slots=True)
class Check(Checker):
    """A promise that honest nodes keep; liars: the names of the hostile nodes."""

    liars: Collection[str] = ()

    def broken(self, world: World, name: str, text: str) -> Violation:
        """Return the Violation of this promise by a node; the caller raises it."""
        return Violation(type(self).__name__, f"at {world.now:.3f} s {name} {text}")


@dataclass(slots=True)
class ResumesWhereItWas(Check):
    """A node that restarts resumes from exactly the state that its disk holds."""

    def started(self, world: World, name: str) -> None:
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
        held = world.hosts[name].durable
        self._newest[name] = held.policy.round if held else 0

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        for effect in () if isinstance(event, ev.AdoptFailed) else of(ev.Adopt, effects):
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
        held = world.hosts[name].durable
        return held is None or held.policy.round < effect.snapshot.policy.round


@dataclass(slots=True)
class AdoptsWhatIsSound(Check):
    """Adopted arrays are finite; adopted prompts are bounded and keep their initial shapes."""

    bound: float = 1e9
    _shapes: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)

    def started(self, world: World, name: str) -> None:
        kernel = world.hosts[name].kernel
        assert kernel is not None, "it was switched on"
        self._shapes[name] = kernel.policy.state().tensors.shapes

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        for effect in () if name in self.liars else of(ev.Adopt, effects):
            policy = effect.snapshot.policy
            tensors, norm = policy.tensors, policy.tensors.norm()
            if not all(one.finite() for one in (tensors, policy.tuned, policy.arrays)):
                raise self.broken(world, name, "adopts numbers that are not finite")
            if norm > self.bound:
                raise self.broken(world, name, f"adopts prompts of norm {norm:.3g}")
            if tensors.shapes != self._shapes[name]:
                raise self.broken(world, name, f"adopts {tensors!r}, not {self._shapes[name]}")


@dataclass(slots=True)
class OneTuningAtATime(Check):
    """A node runs at most one tuning and one commit at a time."""

    _under_way: dict[str, set[type[Effect]]] = field(default_factory=dict)

    def started(self, world: World, name: str) -> None:
        self._under_way[name] = set()

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        under_way = self._under_way.setdefault(name, set())
        if isinstance(event, ev.Tuned | ev.TuneFailed):
            under_way.discard(ev.Tune)
        if isinstance(event, ev.Adopted | ev.AdoptFailed):
            under_way.discard(ev.Adopt)
        for effect in effects:
            if isinstance(effect, ev.Tune | ev.Adopt):
                if type(effect) in under_way:
                    text = f"begins another {type(effect).__name__} while one is under way"
                    raise self.broken(world, name, text)
                under_way.add(type(effect))


@dataclass(slots=True)
class AnswersEachOnce(Check):
    """A node answers each message at most once, in the same step except for indirect pings."""

    _open: dict[str, set[int]] = field(default_factory=dict)

    def started(self, world: World, name: str) -> None:
        self._open[name] = set()

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        waiting = self._open.setdefault(name, set())
        if isinstance(event, ev.Received):
            waiting.add(event.token)
        for effect in of(ev.Answer, effects):
            if effect.token not in waiting:
                raise self.broken(world, name, f"answers {effect.token} again, or unasked")
            waiting.discard(effect.token)
        errand = isinstance(event, ev.Received) and event.message.phase == Phase.INDIRECT
        if isinstance(event, ev.Received) and event.token in waiting and not errand:
            raise self.broken(world, name, f"leaves a {event.message.phase!r} unanswered")


@dataclass(slots=True)
class SpeaksInItsName(Check):
    """A node sends in its own name, only to nodes of the mesh, and never to itself."""

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        for effect in of(ev.Send, effects):
            if effect.message.sender != name:
                raise self.broken(world, name, f"speaks as {effect.message.sender}")
            if effect.to == name or effect.to not in world.hosts:
                raise self.broken(world, name, f"sends to {effect.to!r}")


@dataclass(slots=True)
class TellsOnlyWhatIsStored(Check):
    """A node sends messages of a round only after it stored the round before."""

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        held = world.hosts[name].durable
        stored = held.policy.round if held else 0
        for told in policy_messages(effects):
            if told.message.round > stored + 1:
                text = f"tells of round {told.message.round} and has stored round {stored}"
                raise self.broken(world, name, text)


@dataclass(slots=True)
class KeepsWithinBounds(Check):
    """Timers, unanswered messages and stored arrays of a node stay below fixed bounds."""

    TIMERS_MAX: Final = 200
    ANSWERS_MAX: Final = 500
    ARRAYS_MAX: Final = 200

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        host = world.hosts[name]
        if len(host.timers) > self.TIMERS_MAX or len(host.answers) > self.ANSWERS_MAX:
            text = f"has {len(host.timers)} timers and {len(host.answers)} messages unanswered"
            raise self.broken(world, name, text)
        for timer in of(ev.SetTimer, effects):
            if not 0 <= timer.delay_s < 1e7:
                raise self.broken(world, name, f"sets a timer of {timer.delay_s} s")
        for adopt in of(ev.Adopt, effects):
            if len(adopt.snapshot.policy.arrays) > self.ARRAYS_MAX:
                raise self.broken(world, name, "keeps more arrays than any mesh needs")


@dataclass(slots=True)
class HonestStayFree(Check):
    """No honest node quarantines another honest node."""

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        for record in of(ev.Record, effects):
            peer = record.text.partition(" ")[0]
            if record.kind == "peer.quarantined" and not {name, peer} & set(self.liars):
                raise self.broken(world, name, f"quarantined an honest node: {record.text}")


@dataclass(slots=True)
class WaitsWithinDeadlines(Check):
    """A node waits for others at most one deadline per stage, and one more while it catches up."""

    SLACK_S: Final = 2.0
    _since: dict[str, float] = field(default_factory=dict)
    _said: dict[str, set[tuple[int, str]]] = field(default_factory=dict)

    def started(self, world: World, name: str) -> None:
        self._since[name], self._said[name] = world.now, set()

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        kernel = world.kernel(name)
        if (
            name in self.liars
            or kernel.policy.activity != "exchanging"
            or self._begins(name, effects)
        ):
            self._since[name] = world.now
            return
        waited, limit = world.now - self._since[name], kernel.context.rounds.deadline_s
        if waited > 2 * limit + self.SLACK_S:
            raise self.broken(world, name, f"waits for others for {waited:.0f} s of {limit:g} s")

    def _begins(self, name: str, effects: Sequence[ev.Effect]) -> bool:
        stages = {
            (told.message.round, told.message.phase)
            for told in policy_messages(effects)
            if told.message.phase != AGAIN
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
        self._times[name] = {}

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        if name in self.liars:
            return
        for told in policy_messages(effects):
            said, times = told.message, self._times[name]
            key = told.to, said.phase, said.round, said.tensors.digest
            before, last = times.get(key, (float("-inf"), float("-inf")))
            if world.now - before < RESEND_S - self.ROUNDING_S:
                text = f"sends {said.phase!r} of round {said.round} to {told.to} too often"
                raise self.broken(world, name, text)
            times[key] = last, world.now


@dataclass(slots=True)
class MovesByProof(Check):
    """A node's round and its state move only as far as most members prove that they are.

    The record "round.taken" names a state that the node took over. Its supporters are the peers
    that gave that state, or said in a message of the kernel or in a contribution that they hold it
    (node/fednode/core/rounds/catchup.py). Where a node leaves out rounds, the supporters are the
    peers that sent a contribution to the round before the one that it adopts, or to a later one.
    They must be more than half of all members that began and that the node knew of since it adopted
    last. Half is enough if the node, since it adopted last, saw too few members alive and active
    (node/fednode/core/rounds/quorum.py). In a mesh of two nodes the other is enough.
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
        held = world.hosts[name].durable
        self._newest[name] = held.policy.round if held else 0
        self._heard[name] = dict(self._stored.get(name, {})) if held else {}
        self._states[name], self._inactive[name] = {}, set()
        self._fewest[name] = self._alive(world, name)
        self._known[name] = self._members(world, name)

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
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
        change = self._inactive[name].discard if message.active else self._inactive[name].add
        change(message.sender)
        if message.phase == STATE:
            key = adopted_round(message), message.tensors.digest
        else:
            if message.tensors:
                heard[message.sender] = max(message.round, heard.get(message.sender, 0))
            key = message.round - (message.phase not in PHASES), message.base
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
        held = world.hosts[name].durable
        self._lost[name] = self._newest[name] > (0 if held is None else held.policy.round)
        self._waits[name] = bool(world.hosts[name].account.undecided)

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        held = world.hosts[name].durable
        self._newest[name] = max(self._newest[name], 0 if held is None else held.policy.round)
        accepts = isinstance(event, ev.Commanded) and event.command == "resume --older-state"
        before = self._waits.get(name, False) and not accepts
        waits = self._waits[name] = bool(world.kernel(name).older.undecided)
        if before and not waits:
            raise self.broken(world, name, "speaks again, and its operator has not decided")
        for one in effects:
            if isinstance(one, ev.Tune):
                trains = one.job.stage != MEASURE
                if before and trains and one.job.round > self._begun[name]:
                    text = f"begins round {one.job.round}, and its operator has not decided"
                    raise self.broken(world, name, text)
                if trains or not before:
                    self._begun[name] = one.job.round
            if isinstance(one, ev.Record) and one.kind in {OLDER, COPIED}:
                self._judge(world, name, one)
            if waits and isinstance(one, ev.Send) and one.message.phase not in PHASES:
                raise self.broken(world, name, "speaks while its operator has not decided")

    def _judge(self, world: World, name: str, said: ev.Record) -> None:
        peer = said.fields.get("peer", name)
        if name in self.liars or peer in self.liars:
            return
        if said.kind == COPIED:
            raise self.broken(world, name, f"names a peer of one process: {said.text}")
        if not self._lost[name]:
            raise self.broken(world, name, f"lost nothing, and says: {said.text}")


@dataclass(slots=True)
class SaysOnlyText(Check):
    """Records hold printable text only and no defect, and so do status fields, whatever comes."""

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        if name in self.liars:
            return
        records = [*of(ev.Record, effects)]
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
        if isinstance(event, ev.Received):
            return event.message.sender in self.liars and event.message.phase in PHASES
        return isinstance(event, ev.Undelivered) and event.to in self.liars


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
"""All safety checkers."""


def decide(world: World) -> None:
    """Let the operator of each node that waits for a decision accept its state."""
    for name, host in world.hosts.items():
        if host.kernel is not None and host.kernel.older.undecided:
            world.command(name, "resume --older-state")


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
    records = (record for record in world.hosts[name].records if record.kind == DIFFERS)
    return {str(peer) for record in records for peer in cast("list[Json]", record.fields[PEERS])}


def shown(view: KernelView) -> Iterator[str]:
    yield from (view.life, view.activity, *view.metrics, *view.refused)
    for peer in view.peers:
        yield from (peer.name, peer.state, peer.reason, peer.address, peer.id)
