"""The kernel, which every host runs: step(now, event) -> effects.

The kernel owns a node's life (view.py; when rounds begin, how many there are), its peers, and which
messages are let in. The policy owns what happens inside a round. Rules of this file: no clock, no
entropy, no I/O; peers are visited sorted by name; no message makes step raise.

A message passes the gate before anything follows from it. A peer that sends what no correct node
sends loses its reputation. Membership (members/swim.py) lives on these messages.

A node takes part in the rounds of its peers ("active") unless it is paused, or has run all its
rounds and merged the prompts of no peer. Each message of the kernel and each answer says it. A node
that is not active is to its peers like a node that is gone: no round waits for it, the first round
neither. It sends nothing of its policy, because prompts of rounds that it ran alone are for nobody.
A node that finished with merged prompts stays active: late nodes take over its state.

If a tuning or a commit fails, the kernel records it and tries again with growing pauses. It keeps
the snapshot that could not be stored, so that only time is lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from fednode.core import events as ev
from fednode.core.agreement import Agreement
from fednode.core.facts import fingerprint
from fednode.core.gate import TAKEN, Gate, Verdict
from fednode.core.members import reachability
from fednode.core.members.swim import PROBE, SUSPECT, SYNC, Swim
from fednode.core.members.topology import neighbours
from fednode.core.pace import Pace
from fednode.core.policy import Activity, NodeContext, Policy, PolicyKind
from fednode.core.rate_limit import Changes
from fednode.core.reputation import FAULTS, Reputation, Tally, Tolerance
from fednode.core.settings import LAN, Timing
from fednode.core.starts import Boots, Older
from fednode.core.types import (
    BY_WISH,
    PHASES,
    Account,
    Json,
    MergeCounts,
    Message,
    Phase,
    PolicyState,
    Snapshot,
    Tensors,
)
from fednode.core.view import KernelView, Life, figures
from fednode.core.waiting import HELD_S, FirstWait

START = "kernel.start"
ROUND = "kernel.round"
RETRY = "kernel.retry"
RELEASE = "kernel.release."
BACKOFF_MAX_S: Final = 60.0
DOUBLINGS_MAX: Final = 10
ENDING: Final[Mapping[Life, str]] = {
    Life.LEAVING: "this node is leaving the mesh",
    Life.STOPPING: "this node is stopping; it is known again when it comes back",
}
"""The answer of a node to each message after `fednode leave`, and after SIGTERM."""
NOTED: Final = frozenset({Phase.HELLO, Phase.PING, Phase.MEMBERS})
"""The acknowledgement of such a message says whether the receiver reaches the sender."""
UNCHECKED: Final[Verdict] = ("invalid", "defect", "this node failed when it looked at the message")
"""The verdict on a message that meets a defect of this node, although no message may."""


class Kernel:
    """The kernel of one node; see the file's header.

    policy: of the present rounds. life: what the node does now. round: the last that is durable.
    """

    def __init__(
        self,
        context: NodeContext,
        policy: Policy,
        facts: Mapping[str, str],
        membership: Timing | None = None,
        restored: Snapshot | None = None,
        tolerance: Tolerance | None = None,
        *,
        anew: Callable[[PolicyState], Policy],
        account: Account | None = None,
    ) -> None:
        """Begin with a policy. anew: returns it as it was stored."""
        self.context, self._facts = context, dict(facts)
        self.policy, self._anew = policy, anew
        self._stored = restored or Snapshot(policy.state(), {})  # what is durable
        self._best = self._stored  # its best prompts are the best so far
        self._unsaved: ev.Adopt | None = None
        self._failures = 0  # of the learner or the disk, in a row
        self._adopted_state = policy.state()  # what the policy adopted last
        self._foreign = 0  # the newest round that peers spoke of since the policy was restored
        self._swim = Swim(context, membership or LAN, self._message)
        self._members = self._swim.members
        self._boots = Boots()
        self._reach = reachability.Reach(context.address)
        self._ready: set[str] = set()  # the peers that `_linked` was computed of
        self._linked: frozenset[str] = frozenset()  # the peers that the policy exchanges with
        self._linking = True  # whether this node was active when its links were last looked at
        self._gate = Gate(context, facts, self._members)
        self._reputation = Reputation(tolerance or Tolerance())
        self._refused, self._defects = Tally(), Tally()
        self._changed = Changes()
        self._agreement = Agreement(context.rounds.deadline_s)
        self._wait = FirstWait(context, self._members, self.round)
        self._begun = False  # the wait before the first round has ended
        lead = context.rounds.lead if context.rounds.mode == "async" else None
        self._pace = Pace(lead, context.rounds.min_interval_s)
        self.older = Older(context, self._members, self.round, account or Account())
        self.life = Life.PAUSED if self.older.undecided else Life.WAITING
        self._note_state(self._adopted_state)

    @property
    def round(self) -> int:
        """The last round that is durable."""
        return self._stored.policy.round

    def step(self, now: float, event: ev.Event) -> list[ev.Effect]:
        """Take one event; return the effects to perform, in order.

        It never raises for a peer's fault.
        """
        effects = self._handle(now, event)
        return [*effects, *self._changes(now)]

    def _handle(self, now: float, event: ev.Event) -> list[ev.Effect]:
        match event:
            case ev.Started():
                return self._start(now)
            case ev.Stopping():
                self.life = Life.LEAVING if self.life == Life.LEAVING else Life.STOPPING
                return []
            case ev.Commanded(command=command):
                return self._command(now, command)
            case ev.Misbehaved(peer=peer, reason=reason):
                return self._misbehaved(now, peer, reason)
            case ev.MemberNews(news=news):
                return self._swim.learn(now, news)
            case ev.Received(message=message, token=token):
                effects = self._receive(now, message, token)
                if self._pace.holds:
                    effects += [*self._changes(now), *self._next_round(now)]
                return effects
            case ev.Delivered() | ev.Undelivered():
                return self._sent(now, event)
            case ev.TimerFired(name=name) if name.startswith("kernel."):
                return self._timer(now, name)
            case ev.Tuned(job=job, report=report):
                self._failures = 0
                accuracy = report.metrics.get("validation", -math.inf)
                # Only prompts that the node will use count here.
                if job.measure and accuracy > self._best.best_validation:
                    self._best = replace(
                        self._best,
                        best=report.tensors,
                        best_round=self.round + 1,
                        best_validation=accuracy,
                    )
            case ev.TuneFailed(reason=reason):
                return [*self._tell(now, event), *self._again("tune.failed", reason, ROUND)]
            case ev.AdoptFailed(adopt=adopt, reason=reason):
                self._unsaved = adopt
                return self._again("adopt.failed", reason, RETRY)
            case ev.Adopted(snapshot=snapshot):
                return self._adopted(now, event, snapshot)
        return self._tell(now, event)

    def view(self) -> KernelView:
        peers, live = self._members.view(), self._members.live()
        warnings = (
            self.older.warning,
            *self._boots.warnings(),
            *reachability.warnings(peers),
            *self._reach.warnings(live),
        )
        return KernelView(
            life=self.life,
            activity=self.policy.activity,
            round=self.round,
            rounds_max=self.context.rounds.max,
            metrics=self._stored.metrics,
            peers=peers,
            refused=dict(self._refused.counts),
            best_round=self._best.best_round,
            best_validation=self._best.best_validation,
            alone=bool(peers) and not live,
            apart=self._agreement.apart(live),
            warnings=tuple(filter(None, warnings)),
            awaited=self._wait.awaited if self.life == Life.WAITING else "",
            start_by=math.inf if self._wait.held else self._wait.by,
            merge_counts=self._stored.merge_counts,
            by_wish=self._by_wish,
        )

    # Life -----------------------------------------------------------------------------------------

    def _start(self, now: float) -> list[ev.Effect]:
        """Greet the members, and wait for peers before the first round."""
        self._wait.begin(now)
        limit_s, begun = self._wait.limit_s, self._start_if_ready(now)
        hellos = self._swim.start()  # these say what became of the rounds
        timer = [ev.SetTimer(START, limit_s)] if limit_s < math.inf else []
        waits = [self._wait.waits(self.round + 1)] if self.life == Life.WAITING else []
        return [*hellos, *timer, *begun, *waits]

    def _start_if_ready(self, now: float, timeout: bool = False) -> list[ev.Effect]:
        if self.life != Life.WAITING or (self._wait.short and not timeout):
            return []
        if self._wait.short and self._wait.held:
            return [ev.SetTimer(START, HELD_S)]
        self.life, self._begun = Life.RUNNING, True
        return [*self._wait.late(self.round + 1), *self._next_round(now)]

    def _command(self, now: float, command: ev.Command) -> list[ev.Effect]:
        done = ev.Record("command", f"the operator asked to {command}")
        match command:
            case "resume" | "alone" if self.older.undecided:
                text = f"{command} is not done: this node first needs fednode resume --older-state"
                return [ev.Record("command", text, "warning")]
            case "resume --older-state" if self.older.undecided:
                self.life = Life.PAUSED
                return [done, *self.older.accept(), *self._command(now, "resume")[1:]]
            case "pause" if self.life in {Life.WAITING, Life.RUNNING, Life.FINISHED}:
                self.life = Life.PAUSED
                return [done]
            case "resume" | "alone" if self.life == Life.PAUSED and self._begun:
                self.life = Life.RUNNING
                return [done, *self._changes(now), *self._next_round(now)]
            case "resume" if self.life == Life.PAUSED:
                self.life, over = Life.WAITING, now >= self._wait.by
                return [done, *self._changes(now), *self._start_if_ready(now, over)]
            case "alone" if self.life in {Life.WAITING, Life.PAUSED}:
                self.life, self._wait.alone = Life.WAITING, True
                return [done, *self._changes(now), *self._start_if_ready(now)]
            case "leave":
                self.life = Life.LEAVING
                return [done, *self._swim.leave()]
        text = f"{command} changes nothing: this node is {self.life}"
        return [ev.Record("command", text, "warning")]

    def _timer(self, now: float, name: str) -> list[ev.Effect]:
        if name in {PROBE, SYNC} or name.startswith(SUSPECT):
            return [] if self.life in ENDING else self._swim.timer(name)
        if name.startswith(RELEASE):
            self._members.release(name.removeprefix(RELEASE))
        if name == START:
            return self._start_if_ready(now, timeout=True)
        if name == ROUND:
            return self._next_round(now)
        if name == RETRY and self._unsaved is not None:
            return [self._unsaved]
        return []

    @property
    def _by_wish(self) -> bool:
        return self.context.policy == BY_WISH or not len(self._members)

    @property
    def _active(self) -> bool:
        """Whether this node takes part in the rounds of its peers; see the file's header."""
        if self.life == Life.PAUSED:
            return not self._idle
        alone = self._stored.merge_counts.never(self._by_wish)
        return self.life != Life.FINISHED or not alone

    # Rounds ---------------------------------------------------------------------------------------

    @property
    def _idle(self) -> bool:
        """Whether neither a round nor its commit is under way."""
        return self.policy.activity == Activity.IDLE and self.policy.round <= self.round

    def _next_round(self, now: float) -> list[ev.Effect]:
        most, number = self.context.rounds.max, self.round + 1
        if self.life not in {Life.RUNNING, Life.FINISHED} or not self._idle:
            return []
        if most and number > most:
            ended = self.life == Life.RUNNING
            self.life = Life.FINISHED
            text = f"all {most} rounds are done; this node still answers"
            return [ev.Record("life.finished", text)] if ended else []
        wait = self._pace.wait(now, self._awaited)
        if wait > 0:
            return [ev.SetTimer(ROUND, wait)]
        self.life = Life.RUNNING
        self._pace.began(now)
        began = ev.Record("round.began", f"round {number} begins", "debug", {"round": number})
        due = ev.RoundDue(number, self._behind(number), self._members.remaining())
        return [began, *self._tell(now, due)]

    def _behind(self, number: int) -> frozenset[str]:
        """Return the live peers that have not reached a round, if rounds wait for peers."""
        if self.context.rounds.mode == "async":  # no round waits for anybody
            return frozenset()
        most = self.context.rounds.max or number
        limit = min(number, most) if len(self._members) > 1 else 0
        active = self._members.active()
        return frozenset(peer for peer in active if self._members[peer].round < limit)

    def _awaited(self, peer: str) -> bool:
        return not self._by_wish and peer in self._members.active()

    def _adopted(self, now: float, event: ev.Event, snapshot: Snapshot) -> list[ev.Effect]:
        self._failures, self._unsaved, self._stored = 0, None, snapshot
        self._pace.ended(now)
        effects = self._tell(now, event)
        self._note_state(snapshot.policy)
        metrics, number = snapshot.metrics, self.round
        text = f"round {number} adopted" + (f": {figures(metrics)}" if metrics else "")
        ended = ev.Record("round.adopted", text, "info", {"round": number, **metrics})
        return [ended, *effects, *self._next_round(now)]

    def _note_state(self, state: PolicyState) -> None:
        if self.policy.shared_state and self.context.rounds.mode == "sync" and state.round:
            self._agreement.adopted(state.round, state.digest)

    def _again(self, kind: str, reason: str, timer: str) -> list[ev.Effect]:
        """Record what failed, and try again after a pause that doubles with each failure."""
        self._failures = min(self._failures + 1, DOUBLINGS_MAX)
        if self.life in ENDING:
            return []
        delay = min(BACKOFF_MAX_S, 2.0 ** (self._failures - 1))
        text = f"{reason.rstrip('.')}; trying again in {delay:g} s"
        return [ev.Record(kind, text, "error"), ev.SetTimer(timer, delay)]

    # The policy -----------------------------------------------------------------------------------

    def _tell(self, now: float, event: ev.Event) -> list[ev.Effect]:
        """Pass an event to the policy. It may fail by what peers said, and that ends no node."""
        if isinstance(event, ev.Received | ev.Delivered | ev.Undelivered):
            self._foreign = max(self._foreign, event.message.round, self.round + 1)
        try:
            effects = [self._completed(effect) for effect in self.policy.handle(now, event)]
        except Exception as fault:
            if self._foreign <= self.round:
                raise  # no peer has said anything since it was restored: it failed by itself
            self.policy, self._foreign = self._anew(self._adopted_state), 0
            text = f"the policy failed and goes on from round {self.policy.round}"
            failed = self._defect(ev.Record("policy.failed", text, "error", cause=fault))
            timer = self._again("policy.failed", text, ROUND)[1:]
            return [
                failed,
                *timer,
                *self._tell_all(now, map(ev.PeerUp, sorted(self._linked))),
            ]
        judged = list[ev.Effect]()
        for effect in effects:
            if isinstance(effect, ev.Record) and effect.cause is not None:
                judged += self._misbehaved(now, str(effect.fields.get("peer")), effect.text)
                effect = self._defect(effect)
            judged.append(effect)
        return self.older.permitted(judged)

    def _tell_all(self, now: float, events: Iterable[ev.Event]) -> list[ev.Effect]:
        return [effect for event in events for effect in self._tell(now, event)]

    def _completed(self, effect: ev.Effect) -> ev.Effect:
        """Return a policy's effect; add what belongs to the node to a snapshot that it adopts."""
        if not isinstance(effect, ev.Adopt):
            return effect
        self._adopted_state = self.policy.state()
        rounds, merged = self._stored.merge_counts
        snapshot = replace(
            self._best,
            policy=effect.snapshot.policy,
            metrics=effect.snapshot.metrics,
            merge_counts=MergeCounts(rounds + 1, merged + bool(effect.givers)),
        )
        return replace(effect, snapshot=snapshot)

    def _defect(self, record: ev.Record) -> ev.Record:
        """Return a record of a defect with its cause only if it is the first of its kind."""
        kind, peer = type(record.cause).__name__, str(record.fields.get("peer", ""))
        return record if self._defects.first(kind, peer) else replace(record, cause=None)

    # Messages -------------------------------------------------------------------------------------

    def _receive(self, now: float, message: Message, token: int) -> list[ev.Effect]:
        try:
            return self._take(now, message, token)
        except Exception as fault:  # a defect that a message meets ends no node
            return self._refuse(now, message, token, UNCHECKED, fault)

    def _take(self, now: float, message: Message, token: int) -> list[ev.Effect]:
        sender = message.sender
        effects: list[ev.Effect] = []
        if self.life in ENDING:
            return [ev.Answer(token, "busy", ENDING[self.life])]
        known = sender in self._members and self._members[sender].state != "revoked"
        if message.phase == Phase.HELLO and not known:
            introduction = [member for member in message.members if member.name == sender]
            effects += self._swim.meet(introduction)
        verdict = self._gate.check(message, self.policy)
        if verdict is not TAKEN:
            heard = known and message.mesh == self.context.mesh and message.phase in PHASES
            revoked = [one for one in message.members if heard and one.state == "revoked"]
            effects += self._swim.learn(now, revoked, sender)
            return [*effects, *self._refuse(now, message, token, verdict)]
        newest = self._members[sender].round
        late = message.phase not in PHASES and message.round < newest
        if late and not self.policy.shared_state:
            text = f"round {message.round} is older than round {newest}, which was heard before"
            return [*effects, *self._refuse(now, message, token, ("stale", "stale", text))]
        if not late:  # a late message says nothing of what the sender does now
            self._pace.heard(self.round, message)
            effects += self._swim.heard(now, sender, message.round)
        effects += self._reach.note_message(now, sender)
        effects += self._boots.heard(now, message, self._members[sender].id, self._swim.around_s)
        if message.phase not in PHASES:
            if message.round > newest:
                self._members.set_active(sender, True)
            effects += self._changes(now)
            if sender not in self._linked:
                strange: Verdict = ("stale", "topology", f"{sender!r} is no neighbour of this node")
                return [*effects, *self._refuse(now, message, token, strange)]
            policy, results = self.policy, self._tell(now, ev.Received(message))
            if self.policy is not policy:  # it failed
                return [*effects, *results, *self._refuse(now, message, token, UNCHECKED)]
            return [ev.Answer(token, "ok"), *effects, *results]
        self._members.set_active(sender, message.active)
        self._agreement.heard(sender, message.round, message.base)
        if message.base and sender in self._linked:
            effects += self._tell(now, ev.Claimed(sender, message.round, message.base))
        effects += self._agreement.look(now, self._members.live())
        effects += self._swim.learn(now, message.members, sender)
        effects += self._swim.received(now, message, token)
        if message.phase == Phase.INDIRECT:
            return effects
        note, later = self._members[sender].unreached, self._boots.later(message)
        return [ev.Answer(token, "ok" if self._active else "inactive", note, later), *effects]

    def _refuse(
        self,
        now: float,
        message: Message,
        token: int,
        verdict: Verdict,
        cause: Exception | None = None,
    ) -> list[ev.Effect]:
        """Answer a refused message, count it, and record the first of its kind and sender."""
        code, reason, text = verdict
        sender, effects = message.sender, list[ev.Effect]([ev.Answer(token, code, text)])
        if code == "refused" and sender in self._members:
            self._members.refused(sender, now, text)
        if reason in FAULTS:
            effects += self._misbehaved(now, sender, text)
        if self._refused.first(reason, sender):
            facts: dict[str, Json] = {"peer": sender, "reason": reason}
            level: ev.Level = "info" if code == "stale" else "warning"  # views differ for a while
            said = f"refused a message of {sender!r}: {text}"
            effects.append(ev.Record("message.refused", said, level, facts, cause))
        return effects

    def _misbehaved(self, now: float, sender: str, text: str) -> list[ev.Effect]:
        """Add a fault to a peer's reputation; quarantine the peer if it has too many faults."""
        seconds = self._reputation.fault(sender, now) if sender in self._members else 0.0
        if not seconds:
            return []
        self._members.quarantine(sender, f"quarantined for {seconds:g} s: at last, {text}")
        return [ev.TurnAway(sender, seconds), ev.SetTimer(RELEASE + sender, seconds)]

    def _sent(self, now: float, event: ev.Delivered | ev.Undelivered) -> list[ev.Effect]:
        effects: list[ev.Effect] = []
        noted = event.message.phase in NOTED
        answer = event if isinstance(event, ev.Delivered) and noted else None
        if answer is not None:  # first, because the node may have to pause
            effects += self.older.note_answer(event.to, answer.later)
            if self.older.undecided and self.life not in ENDING:
                self.life = Life.PAUSED
        if event.to in self._members:
            if answer and self._members[event.to].spoke_at < 0:  # later its messages say it
                self._members.set_active(event.to, answer.active)
            effects += [*self._swim.sent(now, event), *self._changes(now)]
        if answer is not None:
            effects += self._reach.note_answer(now, event.to, answer.note, self._swim.around_s)
        if event.message.phase in PHASES:
            return effects
        return [*effects, *self._tell(now, event)]

    def _changes(self, now: float) -> list[ev.Effect]:
        """Record members' changes of state, and tell the policy which peers came and went.

        If this node became active or inactive, it tells its peers, and its links begin or end.
        """
        members, effects = self._members, list[ev.Effect]()
        turned = self._active != self._linking and self.life not in ENDING
        if not (turned or members.changes or members.activity_changed):
            return []
        if turned:
            self._linking = self._active
            effects += self._swim.hellos(members.live())
        changes, members.changes, members.activity_changed = members.changes, [], False
        for peer, before, after in changes:
            effects += self._changed.record(now, peer, after, members[peer].reason, before)
        ready = members.active() if self._linking else set[str]()
        old = self._linked
        if ready != self._ready:
            self._ready = ready
            self._linked = neighbours(self.context.name, ready, self.context.topology)
        effects += self._tell_all(now, map(ev.PeerDown, sorted(old - self._linked)))
        effects += self._tell_all(now, map(ev.PeerUp, sorted(self._linked - old)))
        return [*effects, *self._start_if_ready(now), *self._changes(now)]

    def _message(self, phase: str) -> Message:
        facts = self._facts if phase == Phase.HELLO else None
        message = self.context.message(self.round, phase, facts=facts)
        digest = self._agreement.digest(self.round)
        return replace(message, base=digest, active=self._active, boot=self.context.boot)


def kernel_of(
    context: NodeContext,
    kind: PolicyKind,
    config: Any,
    initial: Callable[[int], Tensors],
    facts: Mapping[str, str],
    held: Snapshot | None,
    timing: Timing = LAN,
    tolerance: Tolerance | None = None,
    account: Account | None = None,
) -> Kernel:
    """Return the kernel of a node that starts, new or restored.

    The context's policy, fingerprint, mode and largest norm are filled in here.

    initial: returns the node's initial prompts for a seed. facts: the settings that all nodes must
    agree on. held: the snapshot on disk; None to start at round 0. account: what the node's
    privacy account says.
    """
    tolerance = tolerance or Tolerance()
    first = initial(context.start_seed)
    context = replace(
        context,
        policy=kind.name,
        fingerprint=fingerprint(facts),
        rounds=replace(context.rounds, mode=context.rounds.mode or kind.modes[0]),
        norm_max=tolerance.norm_ratio * max(1.0, first.norm()) if kind.norm_checked else math.inf,
    )
    policy = (
        kind.start(config, context, first)
        if held is None
        else kind.restore(config, context, held.policy)
    )
    return Kernel(
        context,
        policy,
        facts,
        timing,
        held,
        tolerance,
        anew=lambda state: kind.restore(config, context, state),
        account=account,
    )
