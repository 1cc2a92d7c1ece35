"""The half of the kernel that deals with peers: what it takes from them, and what it tells them.

A message passes the gate before anything follows from it. A peer that sends what no correct node
sends loses its reputation. Membership (members/swim.py) lives on these messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from fednode.core import events as ev
from fednode.core.gate import TAKEN, Verdict
from fednode.core.life import Life
from fednode.core.members.boots import Boots
from fednode.core.members.phases import NOTED, PHASES, Phase
from fednode.core.members.reachability import Reach
from fednode.core.members.swim import Swim
from fednode.core.members.table import LIVE
from fednode.core.members.topology import Links
from fednode.core.older import Older
from fednode.core.policy import NodeContext, Policy
from fednode.core.rate_limit import Changes
from fednode.core.reputation import FAULTS, Reputation, Tally, Tolerance
from fednode.core.run import Run
from fednode.core.settings import Timing
from fednode.core.types import Json, Message

RELEASE = "kernel.release."
UNCHECKED: Final[Verdict] = ("invalid", "defect", "this node failed when it looked at the message")
"""The verdict on a message that meets a defect of this node, although no message may."""


class Peering(ABC):
    """What the kernel knows of its peers; see the file's header. The kernel fills in the rest."""

    older: Older
    _life: Life
    _run: Run

    def __init__(
        self,
        context: NodeContext,
        facts: Mapping[str, str],
        timing: Timing,
        tolerance: Tolerance,
    ) -> None:
        self.context, self._facts = context, dict(facts)
        self._swim = Swim(context, timing, self._message)
        self._members = self._swim.members
        self._boots = Boots()
        self._reputation = Reputation(tolerance)
        self._reach = Reach(context.address)
        self._refused, self._defects = Tally(), Tally()
        self._changed = Changes()
        self._links = Links(context.name, context.topology)
        self._linking = True  # whether this node was active when its links were last looked at

    @property
    def policy(self) -> Policy:
        """The policy of the present run."""
        return self._run.policy

    @property
    def _active(self) -> bool:
        """Whether this node takes part in the rounds of its peers (run.py)."""
        return self._run.active(self._life)

    @abstractmethod
    def _tell(self, now: float, event: ev.Event) -> list[ev.Effect]: ...

    @abstractmethod
    def _start_if_ready(self, now: float, timeout: bool = False) -> list[ev.Effect]: ...

    # Messages -------------------------------------------------------------------------------------

    def _receive(self, now: float, message: Message, token: int) -> list[ev.Effect]:
        try:
            return self._take(now, message, token)
        except Exception as fault:  # a defect that a message meets ends no node
            return self._refuse(now, message, token, UNCHECKED, fault)

    def _take(self, now: float, message: Message, token: int) -> list[ev.Effect]:
        sender = message.sender
        effects: list[ev.Effect] = []
        if self._life == Life.LEAVING:
            return [ev.Answer(token, "busy", "this node is leaving the mesh")]
        known = sender in self._members and self._members[sender].state != "revoked"
        if message.phase == Phase.HELLO and not known:
            introduction = [member for member in message.members if member.name == sender]
            effects += self._swim.meet(introduction)
        verdict = self._run.gate.check(message, self.policy)
        if verdict is not TAKEN:
            heard = known and message.mesh == self.context.mesh and message.phase in PHASES
            revoked = [one for one in message.members if heard and one.state == "revoked"]
            effects += [*self._swim.learn(now, revoked, sender), *self._changes(now)]
            return [*effects, *self._refuse(now, message, token, verdict)]
        self._run.pace.heard(self._run.round, message)
        effects += self._swim.heard(now, sender, message.round)
        effects += self._reach.came(now, sender)
        effects += self._boots.heard(now, message, self._members[sender].id, self._swim.around_s)
        if message.phase not in PHASES:
            self._members.turn(sender, True)  # it sends prompts, so its rounds run
            effects += self._changes(now)
            if sender not in self._links:
                strange: Verdict = ("stale", "topology", f"{sender!r} is no neighbour of this node")
                return [*effects, *self._refuse(now, message, token, strange)]
            policy, told = self.policy, self._tell(now, ev.Received(message))
            if self.policy is not policy:  # it failed
                return [*effects, *told, *self._refuse(now, message, token, UNCHECKED)]
            return [ev.Answer(token, "ok"), *effects, *told]
        self._members.turn(sender, message.active)
        if message.fingerprint == self.context.fingerprint:
            self._run.agreement.heard(sender, message.round, message.contributors)
            if message.contributors and sender in self._links:
                claim = ev.Claimed(sender, message.round, message.contributors)
                effects += self._tell(now, claim)
        effects += self._run.agreement.look(now, self._members.live())
        effects += self._swim.learn(now, message.members, sender)
        special = self._swim.received(now, message, token)
        note, later = self._members[sender].unreached, self._boots.later(message)
        plain: list[ev.Effect] = [
            ev.Answer(token, "ok" if self._active else "inactive", note, later)
        ]
        answer = plain if special is None else special
        effects += [*self._swim.lists(message), *self._changes(now)]
        return [*answer, *effects]

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
            effects += self._changes(now)
        if reason in FAULTS and sender in self._members:
            effects += self._misbehaved(now, sender, text)
        if code == "duplicate":  # nobody's fault
            self._refused.counts[reason] += 1
            return effects
        if self._refused.first(reason, sender):
            facts: dict[str, Json] = {"peer": sender, "reason": reason}
            level: ev.Level = "info" if code == "stale" else "warning"  # late is nobody's fault
            said = f"refused a message of {sender!r}: {text}"
            effects.append(ev.Record("message.refused", said, level, facts, cause))
        return effects

    def _defect(self, record: ev.Record) -> ev.Record:
        """Return a record of a defect with its cause only if it is the first of its kind."""
        kind, peer = type(record.cause).__name__, str(record.fields.get("peer", ""))
        return record if self._defects.first(kind, peer) else replace(record, cause=None)

    def _misbehaved(self, now: float, sender: str, text: str) -> list[ev.Effect]:
        """Add a fault to a peer's reputation; quarantine the peer if it has too many faults."""
        seconds = self._reputation.fault(sender, now)
        if not seconds:
            return []
        self._members.quarantine(sender, f"quarantined for {seconds:g} s: at last, {text}")
        ends = ev.TurnAway(sender, seconds), ev.SetTimer(RELEASE + sender, seconds)
        return [*self._changes(now), *ends]

    def _sent(self, now: float, event: ev.Delivered | ev.Undelivered) -> list[ev.Effect]:
        effects: list[ev.Effect] = []
        noted = event.message.phase in NOTED
        answer = event if isinstance(event, ev.Delivered) and noted else None
        if answer is not None:  # first, because the node may have to pause
            effects += self.older.told(event.to, answer.later)
            if self.older.undecided and self._life != Life.LEAVING:
                self._life = Life.PAUSED
        if event.to in self._members:
            if answer and self._members[event.to].spoke_at < 0:  # later its messages say it
                self._members.turn(event.to, answer.active)
            effects += [*self._swim.sent(now, event), *self._changes(now)]
        if answer is not None:
            effects += self._reach.told(now, event.to, answer.note, self._swim.around_s)
        if event.message.phase in PHASES:
            return effects
        return [*effects, *self._tell(now, event)]

    def _changes(self, now: float) -> list[ev.Effect]:
        """Return records of members' state changes; tell the policy which peers came and went."""
        if not self._members.changes and not self._members.turned:
            return []
        effects = list[ev.Effect]()
        moved, self._members.turned = self._members.turned, set()
        changes, self._members.changes = self._members.changes, []
        for peer, before, after in changes:
            effects += self._changed.record(now, peer, after, self._members[peer].reason, before)
            if (before in LIVE) != (after in LIVE):
                moved.add(peer)
        return [*effects, *self._relink(now, moved)] if moved else effects

    def _relink(self, now: float, moved: set[str]) -> list[ev.Effect]:
        """Tell the policy which peers it exchanges prompts with, after some came or went."""
        gone, fresh = self._links.follow(self._members, moved, self._active)
        effects: list[ev.Effect] = []
        for peer in gone:
            effects += self._tell(now, ev.PeerDown(peer))
        for peer in fresh:
            effects += self._tell(now, ev.PeerUp(peer))
        return [*effects, *self._start_if_ready(now)]

    def _turned(self, now: float) -> list[ev.Effect]:
        """Tell the live peers, and change the links, if this node became active or inactive."""
        if self._life == Life.LEAVING or self._active == self._linking:
            return []
        self._linking, live = self._active, self._members.live()
        return [*self._swim.hellos(live), *self._relink(now, {*live})]

    def _message(self, phase: str) -> Message:
        facts = self._facts if phase == Phase.HELLO else None
        message = self.context.message(self._run.round, phase, facts=facts)
        digest = self._run.agreement.digest(self._run.round)
        return replace(
            message,
            contributors=digest,
            active=self._active,
            boot=self.context.boot,
        )
