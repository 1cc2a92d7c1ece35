"""The kernel, which every host runs: step(now, event) -> effects.

The kernel owns a node's life (life.py; when rounds begin, how many there are), its peers, and which
messages are let in. The policy owns what happens inside a round. Rules of this file: no clock, no
entropy, no I/O; peers are visited sorted by name; no message makes step raise.

If a tuning or a commit fails, the kernel records it and tries again with growing pauses. It keeps
the snapshot that could not be stored, so that only time is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fednode.core import events as ev
from fednode.core.agreement import Agreement
from fednode.core.best import Best
from fednode.core.gate import Gate, Verdict
from fednode.core.life import Life
from fednode.core.members import unreached
from fednode.core.members.links import Links
from fednode.core.members.phases import NOTED, PHASES, Phase
from fednode.core.members.reach import Reach
from fednode.core.members.swim import PROBE, SUSPECT, SYNC, Swim
from fednode.core.members.table import LIVE
from fednode.core.pace import Pace
from fednode.core.policy import Activity, NodeContext, Policy
from fednode.core.reputation import FAULTS, Reputation, Tally, Tolerance
from fednode.core.settings import LAN, Timing
from fednode.core.types import Json, Message, PolicyState, Snapshot
from fednode.core.view import KernelView
from fednode.core.waiting import FirstWait

START = "kernel.start"
ROUND = "kernel.round"
RETRY = "kernel.retry"
RELEASE = "kernel.release."
BACKOFF_MAX_S = 60.0


class Kernel:
    """The kernel of one node; see the file's header."""

    def __init__(
        self,
        context: NodeContext,
        policy: Policy,
        facts: Mapping[str, str],
        membership: Timing | None = None,
        restored: Snapshot | None = None,
        tolerance: Tolerance | None = None,
    ) -> None:
        self.context = context
        self.policy = policy
        self._facts = dict(facts)
        self._swim = Swim(context, membership or LAN, self._message)
        self._members = self._swim.members
        self._gate = Gate(context, facts, self._members)
        self._reputation = Reputation(tolerance or Tolerance())
        self._agreement = Agreement(context.rounds.deadline_s)
        self._round = policy.round  # the last that is durable
        self._note_state(policy.state())
        self._life = Life.WAITING
        self._start_wait = FirstWait(context.rounds, self._members, self._round)
        self._metrics: Mapping[str, float] = restored.metrics if restored else {}
        held = restored or Snapshot(policy.state(), {})
        self._best = Best(held)
        self._reach = Reach(context.address)
        self._refused = Tally()
        self._links = Links(context.name, context.topology)
        self._failures = 0
        self._unsaved: Snapshot | None = None
        lead = context.rounds.lead if context.rounds.mode == "async" else None
        self._pace = Pace(lead, context.rounds.min_interval_s)
        self._exchanges = False  # whether the policy has sent anything
        self._extra = 0  # rounds asked for beyond rounds.max

    def step(self, now: float, event: ev.Event) -> list[ev.Effect]:
        """Take one event; return the effects to perform, in order.

        It never raises for a peer's fault.
        """
        match event:
            case ev.Started():
                return self._start(now)
            case ev.Stopping():
                self._life = Life.LEAVING
                return []
            case ev.Commanded(command=command):
                return self._command(now, command)
            case ev.Misbehaved(peer=peer, reason=reason):
                return self._misbehaved(now, peer, reason) if peer in self._members else []
            case ev.Told(news=news):
                return [*self._swim.learn(now, news), *self._changes(now)]
            case ev.Received(message=message, token=token):
                effects = self._receive(now, message, token)
                return [*effects, *self._next_round(now)] if self._pace.holds else effects
            case ev.Delivered() | ev.Undelivered():
                return self._sent(now, event)
            case ev.TimerFired(name=name) if name.startswith("kernel."):
                return self._timer(now, name)
            case ev.Tuned(job=job, report=report):
                self._failures = 0
                if job.measure:  # only prompts that the node will use count here
                    self._best.judge(self._round + 1, report.metrics, report.tensors)
            case ev.TuneFailed(reason=reason):
                return [*self._tell(now, event), *self._again("tune.failed", reason, ROUND)]
            case ev.AdoptFailed(snapshot=snapshot, reason=reason):
                self._unsaved = snapshot
                return self._again("adopt.failed", reason, RETRY)
            case ev.Adopted(snapshot=snapshot):
                return self._adopted(now, event, snapshot)
            case _:
                pass
        return self._tell(now, event)

    def view(self) -> KernelView:
        """Return the node as status shows it."""
        peers, live = self._members.view(), self._members.live()
        return KernelView(
            life=self._life,
            phase=self.policy.phase,
            round=self._round,
            rounds_max=self.context.rounds.max,
            metrics=self._metrics,
            peers=peers,
            refused=dict(self._refused.counts),
            best_round=self._best.round,
            best_validation=self._best.validation,
            alone=bool(peers) and not live,
            apart=self._agreement.apart(live),
            warnings=(*unreached.warnings(peers), *self._reach.warnings(live)),
            awaited=self._start_wait.awaited if self._life == Life.WAITING else "",
            start_by=self._start_wait.by,
        )

    # Life -----------------------------------------------------------------------------------------

    def _start(self, now: float) -> list[ev.Effect]:
        self._start_wait.begin(now)
        self._reach.begin(now)
        effects = [ev.SetTimer(START, self.context.rounds.start.timeout_s), *self._swim.start()]
        begun = self._start_if_ready(now)
        return [*effects, *(begun or [self._start_wait.waits(self._round + 1)])]

    def _start_if_ready(self, now: float, timeout: bool = False) -> list[ev.Effect]:
        if self._life != Life.WAITING or (self._start_wait.short and not timeout):
            return []
        self._life = Life.RUNNING
        return [*self._start_wait.late(self._round + 1), *self._next_round(now)]

    def _next_round(self, now: float) -> list[ev.Effect]:
        rounds, number = self.context.rounds, self._round + 1
        if self._life not in {Life.RUNNING, Life.FINISHED} or self.policy.phase != Activity.IDLE:
            return []
        if rounds.max and number > rounds.max and not self._extra:
            ended = self._life == Life.RUNNING
            self._life = Life.FINISHED
            text = f"all {rounds.max} rounds are done; still serving peers and status"
            return [ev.Record("life.finished", text)] if ended else []
        wait = self._pace.wait(now, number, self._awaited)
        if wait > 0:
            return [ev.SetTimer(ROUND, wait)]
        self._life = Life.RUNNING
        self._pace.began(now)
        began = ev.Record("round.began", f"round {number} begins", "debug", {"round": number})
        members = self._members.remaining()
        due = ev.RoundDue(number, self._best.start(), self._behind(number), members)
        return [began, *self._tell(now, due)]

    def _awaited(self, peer: str) -> bool:
        return self._exchanges and peer in self._members and self._members[peer].live

    def _behind(self, number: int) -> frozenset[str]:
        if self.context.rounds.mode == "async":  # no round waits for anybody
            return frozenset()
        most, live = self.context.rounds.max or number, self._members.live()
        limit = min(number, most) if len(self._members) > 1 else 0
        return frozenset(peer for peer in live if self._members[peer].round < limit)

    def _command(self, now: float, command: ev.Command) -> list[ev.Effect]:
        done = ev.Record("command", f"the operator asked to {command}")
        match command:
            case "pause" if self._life in {Life.WAITING, Life.RUNNING, Life.FINISHED}:
                self._life = Life.PAUSED
            case "resume" if self._life == Life.PAUSED:
                self._life = Life.RUNNING
                return [done, *self._next_round(now)]
            case "leave":
                self._life = Life.LEAVING
                return [done, *self._swim.leave()]
            case "retune" if self._life in {Life.RUNNING, Life.FINISHED}:
                self._extra += 1
                return [done, *self._next_round(now)]
            case "rollback" if self._best.roll_back():
                pass
            case _:
                return [ev.Record("command", f"{command} does nothing now", "warning")]
        return [done]

    def _adopted(self, now: float, event: ev.Event, snapshot: Snapshot) -> list[ev.Effect]:
        self._failures, self._unsaved = 0, None
        self._metrics = snapshot.metrics
        number, most = snapshot.policy.round, self.context.rounds.max
        self._round = number
        if most and number > most:
            self._extra = max(0, self._extra - 1)
        shown = ", ".join(f"{key} {snapshot.metrics[key]:.4g}" for key in sorted(snapshot.metrics))
        self._pace.ended(now)
        told = self._tell(now, event)
        told += self._reach.adopted(now, self._members.live(), self._swim.around_s)
        self._note_state(snapshot.policy)
        facts: dict[str, Json] = {"round": number, **snapshot.metrics}
        record = ev.Record("round.adopted", f"round {number} adopted: {shown}", "info", facts)
        return [record, *told, *self._next_round(now)]

    def _note_state(self, state: PolicyState) -> None:
        """Store the digest of a round's state, if all nodes are to hold the same state."""
        if self.policy.shared_state and self.context.rounds.mode == "sync" and state.round:
            self._agreement.adopted(state.round, state.tensors.digest)

    def _again(self, kind: str, reason: str, timer: str) -> list[ev.Effect]:
        if self._life == Life.LEAVING:
            return []
        delay = min(BACKOFF_MAX_S, 2.0**self._failures)
        self._failures = min(self._failures + 1, 10)
        text = f"{reason}; trying again in {delay:g} s"
        return [ev.Record(kind, text, "error"), ev.SetTimer(timer, delay)]

    # Messages -------------------------------------------------------------------------------------

    def _receive(self, now: float, message: Message, token: int) -> list[ev.Effect]:
        sender = message.sender
        effects: list[ev.Effect] = []
        if self._life == Life.LEAVING:
            return [ev.Answer(token, "busy", "this node is leaving the mesh")]
        known = sender in self._members and self._members[sender].state != "revoked"
        if message.phase == Phase.HELLO and not known:
            introduction = [one for one in message.members if one.name == sender]
            effects += self._swim.meet(introduction)
        code, reason, text = self._gate.check(message, self.policy)
        if code != "ok":
            return [*effects, *self._refuse(now, message, token, (code, reason, text))]
        self._pace.heard(now, self._round, message)
        effects += [*self._swim.heard(now, sender, message.round), *self._reach.came(now, sender)]
        if message.phase not in PHASES:
            effects += self._changes(now)
            if sender not in self._links:
                strange: Verdict = ("stale", "topology", f"{sender!r} is no neighbour of this node")
                return [*effects, *self._refuse(now, message, token, strange)]
            return [ev.Answer(token, "ok"), *effects, *self._tell(now, ev.Received(message))]
        self._agreement.heard(sender, message.round, message.contributors)
        effects += self._agreement.look(now, self._members.live())
        effects += self._swim.learn(now, message.members, sender)
        special = self._swim.received(now, message, token)
        note = self._members[sender].unreached
        answer = [ev.Answer(token, "ok", note)] if special is None else special
        return [*answer, *effects, *self._swim.lists(message), *self._changes(now)]

    def _refuse(
        self, now: float, message: Message, token: int, verdict: Verdict
    ) -> list[ev.Effect]:
        """Answer a refused message, count it, and record the first of its kind and sender."""
        code, reason, text = verdict
        sender, effects = message.sender, list[ev.Effect]([ev.Answer(token, code, text)])
        if code == "refused" and sender in self._members:
            self._members.refused(sender, now, text)
            effects += self._changes(now)
        if reason in FAULTS and sender in self._members:
            effects += self._misbehaved(now, sender, text)
        if code == "duplicate":  # sent again because our answer got lost: nobody's fault
            self._refused.counts[reason] += 1
            return effects
        if self._refused.first(reason, sender):
            facts: dict[str, Json] = {"peer": sender, "reason": reason}
            effects.append(
                ev.Record("message.refused", f"from {sender!r}: {text}", "warning", facts)
            )
        return effects

    def _misbehaved(self, now: float, sender: str, text: str) -> list[ev.Effect]:
        """Add a fault to a peer's reputation; quarantine the peer if it has too many faults."""
        seconds = self._reputation.fault(sender, now)
        if not seconds:
            return []
        self._members.quarantine(sender, f"quarantined for {seconds:g} s: at last, {text}")
        return [*self._changes(now), ev.SetTimer(RELEASE + sender, seconds)]

    def _sent(self, now: float, event: ev.Delivered | ev.Undelivered) -> list[ev.Effect]:
        effects: list[ev.Effect] = []
        if event.to in self._members:
            effects = [*self._swim.sent(now, event), *self._changes(now)]
        if isinstance(event, ev.Delivered) and event.message.phase in NOTED:
            effects += self._reach.told(now, event.to, event.note, self._swim.around_s)
        return effects if event.message.phase in PHASES else [*effects, *self._tell(now, event)]

    def _changes(self, now: float) -> list[ev.Effect]:
        """Return records of members' state changes; tell the policy which peers came and went."""
        if not self._members.changes:
            return []
        effects, moved = list[ev.Effect](), set[str]()
        changes, self._members.changes = self._members.changes, []
        for peer, before, after in changes:
            reason = self._members[peer].reason
            level: ev.Level = (
                "warning" if after in {"dead", "refused", "revoked", "quarantined"} else "info"
            )
            text = f"{peer} is {after}" + (f": {reason}" if reason else "")
            effects.append(ev.Record(f"peer.{after}", text, level, {"peer": peer}))
            if (before in LIVE) != (after in LIVE):
                moved.add(peer)
        return [*effects, *self._relink(now, moved)] if moved else effects

    def _relink(self, now: float, moved: set[str]) -> list[ev.Effect]:
        """Tell the policy which peers it exchanges prompts with, after some came or went."""
        gone, fresh = self._links.follow(self._members, moved)
        effects: list[ev.Effect] = []
        for peer in gone:
            effects += self._tell(now, ev.PeerDown(peer))
        for peer in fresh:
            effects += self._tell(now, ev.PeerUp(peer))
        return [*effects, *self._start_if_ready(now)]

    def _timer(self, now: float, name: str) -> list[ev.Effect]:
        if name in {PROBE, SYNC} or name.startswith(SUSPECT):
            if self._life == Life.LEAVING:
                return []
            return [*self._swim.timer(name), *self._changes(now)]
        if name.startswith(RELEASE):
            self._members.release(name.removeprefix(RELEASE))
            return self._changes(now)
        if name == START:
            return self._start_if_ready(now, timeout=True)
        if name == ROUND:
            return self._next_round(now)
        if name == RETRY and self._unsaved is not None:
            return [ev.Adopt(self._unsaved)]
        return []

    def _tell(self, now: float, event: ev.Event) -> list[ev.Effect]:
        """Pass an event to the policy; add the node's best prompts to what the policy adopts."""
        effects = self.policy.handle(now, event)
        self._exchanges = self._exchanges or any(isinstance(one, ev.Send) for one in effects)
        return self._best.in_snapshots(effects)

    def _message(self, phase: str) -> Message:
        facts = self._facts if phase == Phase.HELLO else None
        message = self.context.message(self._round, phase, facts=facts)
        digest = self._agreement.digest(self._round)
        return replace(message, contributors=digest) if digest else message
