"""The kernel, which every host runs: step(now, event) -> effects.

The kernel owns a node's life (life.py; when rounds begin, how many there are), its peers, and which
messages are let in. The policy owns what happens inside a round. Rules of this file: no clock, no
entropy, no I/O; peers are visited sorted by name; no message makes step raise.

If a tuning or a commit fails, the kernel records it and tries again with growing pauses. It keeps
the snapshot that could not be stored, so that only time is lost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fednode.core import events as ev
from fednode.core.life import Life
from fednode.core.members import reachability
from fednode.core.members.swim import PROBE, SUSPECT, SYNC
from fednode.core.older import Older
from fednode.core.peering import RELEASE, Peering
from fednode.core.policy import NodeContext, Policy
from fednode.core.reputation import Tolerance
from fednode.core.run import Anew, Run, again, ended
from fednode.core.settings import LAN, Timing
from fednode.core.types import Account, Snapshot
from fednode.core.view import KernelView
from fednode.core.waiting import HELD_S

START = "kernel.start"
ROUND = "kernel.round"
RETRY = "kernel.retry"


class Kernel(Peering):
    """The kernel of one node; see the file's header."""

    def __init__(
        self,
        context: NodeContext,
        policy: Policy,
        facts: Mapping[str, str],
        membership: Timing | None = None,
        restored: Snapshot | None = None,
        tolerance: Tolerance | None = None,
        *,
        anew: Anew,
        account: Account | None = None,
    ) -> None:
        """Begin with a policy. anew: returns it as it was stored."""
        super().__init__(context, facts, membership or LAN, tolerance or Tolerance())
        self._failures = 0
        self._unsaved: Snapshot | None = None
        held = restored or Snapshot(policy.state(), {})
        self.older = Older(context, self._members, held.policy.round, account or Account())
        self._life = Life.PAUSED if self.older.undecided else Life.WAITING
        self._run = Run(context, self._members, facts, policy, held, anew)

    def step(self, now: float, event: ev.Event) -> list[ev.Effect]:
        """Take one event; return the effects to perform, in order.

        It never raises for a peer's fault.
        """
        effects = self._handle(now, event)
        return [*effects, *self._turned(now)]

    def _handle(self, now: float, event: ev.Event) -> list[ev.Effect]:
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
            case ev.Regained():
                return self._swim.greet(self._members.absent())
            case ev.Received(message=message, token=token):
                effects = self._receive(now, message, token)
                return [*effects, *self._next_round(now)] if self._run.pace.holds else effects
            case ev.Delivered() | ev.Undelivered():
                return self._sent(now, event)
            case ev.TimerFired(name=name) if name.startswith("kernel."):
                return self._timer(now, name)
            case ev.Tuned(job=job, report=report):
                self._failures = 0
                if job.measure:  # only prompts that the node will use count here
                    self._run.best.judge(self._run.round + 1, report.metrics, report.tensors)
            case ev.TuneFailed(reason=reason):
                return [*self._tell(now, event), *self._again("tune.failed", reason, ROUND)]
            case ev.AdoptFailed(snapshot=snapshot, reason=reason):
                self._unsaved = snapshot
                return self._again("adopt.failed", reason, RETRY)
            case ev.Adopted(snapshot=snapshot):
                return self._adopted(now, event, snapshot)
        return self._tell(now, event)

    @property
    def life(self) -> Life:
        """What the node does now."""
        return self._life

    def view(self) -> KernelView:
        """Return the node as status shows it."""
        peers, live = self._members.view(), self._members.live()
        warnings = (
            self.older.warning,
            *self._boots.warnings(),
            *reachability.warnings(peers),
            *self._reach.warnings(live),
        )
        return KernelView(
            life=self._life,
            phase=self.policy.phase,
            round=self._run.round,
            rounds_max=self.context.rounds.max,
            metrics=self._run.metrics,
            peers=peers,
            refused=dict(self._refused.counts),
            best_round=self._run.best.round,
            best_validation=self._run.best.validation,
            alone=bool(peers) and not live,
            apart=self._run.agreement.apart(live),
            warnings=tuple(filter(None, warnings)),
            awaited=self._run.wait.awaited if self._life == Life.WAITING else "",
            start_by=math.inf if self._run.wait.held else self._run.wait.by,
            merge_counts=self._run.merge_counts,
            by_wish=self._run.by_wish,
        )

    # Life -----------------------------------------------------------------------------------------

    def _start(self, now: float) -> list[ev.Effect]:
        begun = self._wait(now)  # before the hellos, which say what became of the rounds
        return [*self._swim.start(), *begun]

    def _wait(self, now: float) -> list[ev.Effect]:
        """Wait for peers before the first round of this life or of these rounds."""
        self._run.wait.begin(now)
        limit_s = self._run.wait.limit_s
        timer = [ev.SetTimer(START, limit_s)] if limit_s < math.inf else []
        begun = self._start_if_ready(now)
        waits = self._life == Life.WAITING
        return [*timer, *begun, *([self._run.wait.waits(self._run.round + 1)] if waits else [])]

    def _start_if_ready(self, now: float, timeout: bool = False) -> list[ev.Effect]:
        if self._life != Life.WAITING or (self._run.wait.short and not timeout):
            return []
        if self._run.wait.short and self._run.wait.held:
            return [ev.SetTimer(START, HELD_S)]
        self._life, self._run.begun = Life.RUNNING, True
        return [*self._run.wait.late(self._run.round + 1), *self._next_round(now)]

    def _next_round(self, now: float) -> list[ev.Effect]:
        rounds, number = self.context.rounds, self._run.round + 1
        if self._life not in {Life.RUNNING, Life.FINISHED} or not self._run.idle:
            return []
        if rounds.max and number > rounds.max:
            ended = self._life == Life.RUNNING
            self._life = Life.FINISHED
            text = f"all {rounds.max} rounds are done; still serving peers and status"
            return [ev.Record("life.finished", text)] if ended else []
        wait = self._run.pace.wait(now, self._awaited)
        if wait > 0:
            return [ev.SetTimer(ROUND, wait)]
        self._life = Life.RUNNING
        self._run.pace.began(now)
        began = ev.Record("round.began", f"round {number} begins", "debug", {"round": number})
        due = ev.RoundDue(number, self._run.behind(number), self._members.remaining())
        return [began, *self._tell(now, due)]

    def _awaited(self, peer: str) -> bool:
        live = peer in self._members and self._members[peer].live
        return self._run.exchanges and live and peer not in self._members.inactive

    def _command(self, now: float, command: ev.Command) -> list[ev.Effect]:
        done = ev.Record("command", f"the operator asked to {command}")
        match command:
            case "resume" | "alone" if self.older.undecided:
                text = f"{command} waits for fednode resume --older-state"
                return [ev.Record("command", text, "warning")]
            case "resume --older-state" if self.older.undecided:
                self._life = Life.PAUSED
                return [done, *self.older.accept(), *self._command(now, "resume")[1:]]
            case "pause" if self._life in {Life.WAITING, Life.RUNNING, Life.FINISHED}:
                self._life = Life.PAUSED
                return [done]
            case "resume" | "alone" if self._life == Life.PAUSED and self._run.begun:
                self._life = Life.RUNNING
                return [done, *self._turned(now), *self._next_round(now)]
            case "resume" if self._life == Life.PAUSED:
                self._life, over = Life.WAITING, now >= self._run.wait.by
                return [done, *self._turned(now), *self._start_if_ready(now, over)]
            case "alone" if self._life in {Life.WAITING, Life.PAUSED}:
                self._life, self._run.wait.alone = Life.WAITING, True
                return [done, *self._turned(now), *self._start_if_ready(now)]
            case "leave":
                self._life = Life.LEAVING
                return [done, *self._swim.leave()]
        return [ev.Record("command", f"{command} does nothing now", "warning")]

    def _met_again(self, now: float) -> list[ev.Effect]:
        """Tell a policy that is new which peers it exchanges prompts with."""
        met = [self._tell(now, ev.PeerUp(peer)) for peer in self._links.linked]
        return [effect for effects in met for effect in effects]

    def _adopted(self, now: float, event: ev.Event, snapshot: Snapshot) -> list[ev.Effect]:
        self._failures, self._unsaved = 0, None
        self._run.adopted(snapshot)
        self._run.pace.ended(now)
        told = self._tell(now, event)
        self._run.note_state(snapshot.policy)
        return [ended(snapshot), *told, *self._next_round(now)]

    def _again(self, kind: str, reason: str, timer: str) -> list[ev.Effect]:
        self._failures = min(self._failures + 1, 10)
        return [] if self._life == Life.LEAVING else again(kind, reason, timer, self._failures)

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
        """Pass an event to the policy. It may fail by what peers said, and that ends no node."""
        try:
            effects = self._run.tell(now, event)
        except Exception as fault:
            if not self._run.restore():
                raise
            text = f"the policy failed and goes on from round {self.policy.round}"
            failed = self._defect(ev.Record("policy.failed", text, "error", cause=fault))
            timer = self._again("policy.failed", text, ROUND)[1:]
            return [failed, *timer, *self._met_again(now)]
        told = list[ev.Effect]()
        for effect in effects:
            if isinstance(effect, ev.Record) and effect.cause is not None:
                peer = str(effect.fields.get("peer"))
                told += self._misbehaved(now, peer, effect.text) if peer in self._members else []
                effect = self._defect(effect)
            told.append(effect)
        return self.older.permitted(told)
