"""One run of a node's rounds: all that is new if the rounds begin anew under other settings.

A node takes part in the rounds of its peers ("active") unless it is paused, or has run all its
rounds and merged the prompts of no peer. Each message of the kernel and each answer says it. A node
that is not active is to its peers like a node that is gone: no round waits for it, the first round
neither. It sends nothing of its policy, because prompts of rounds that it ran alone are for nobody.
A node that finished with merged prompts stays active: late nodes take over its state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from fednode.core import company
from fednode.core import events as ev
from fednode.core.agreement import Agreement
from fednode.core.best import Best
from fednode.core.documents import Documents
from fednode.core.gate import Gate
from fednode.core.life import Life
from fednode.core.members.table import Members
from fednode.core.pace import Pace
from fednode.core.policy import Activity, NodeContext, Policy
from fednode.core.types import Json, PolicyState, Snapshot
from fednode.core.waiting import FirstWait

BACKOFF_MAX_S: Final = 60.0


class Anew(Protocol):
    """Makes a node's policy."""

    def __call__(self, held: PolicyState | None = None, /) -> Policy:
        """Return a policy as it was stored, or at round 0."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a kernel runs with under a settings document.

    policy: goes on from the state that the host was given. anew: returns another one. begins: the
    rounds begin anew, because more differs than how many there are, and between whom.
    """

    context: NodeContext
    policy: Policy
    facts: Mapping[str, str]
    anew: Anew
    begins: bool


Under = Callable[[str, PolicyState], Parts]
"""Return the parts under the document with a digest; the state is that of the present policy."""


def no_parts(digest: str, state: PolicyState) -> Parts:
    """Return no parts: this host makes no document the one in force."""
    raise RuntimeError(f"no document {digest} was prepared, in round {state.round}")


class Run:
    """One run of a node's rounds, and its policy.

    round: the last that is durable. begun: the wait before the first round has ended. metrics,
    merge_counts: those of the last durable snapshot. exchanges: the policy has sent anything.
    redone: how often the rounds began anew. under_way: the next run is being made durable. ordered:
    a settings document begins the next run, which waits for nobody.
    """

    def __init__(
        self,
        context: NodeContext,
        members: Members,
        facts: Mapping[str, str],
        policy: Policy,
        held: Snapshot,
        anew: Anew,
        documents: Documents,
    ) -> None:
        """Begin with a policy. anew: returns another, for the run after this one."""
        self.policy = policy
        self._kept, self._foreign = policy.state(), 0  # what it adopted last; newest round heard of
        self._context, self._facts, self._anew = context, facts, anew
        self._documents = documents
        self.round = policy.round
        self.gate = Gate(context, facts, members, documents)
        self.agreement = Agreement(context.rounds.deadline_s)
        self.wait = FirstWait(context, members, policy.round)
        self.redone, self.under_way = held.redone, False
        self.begun = False
        self.metrics: Mapping[str, float] = held.metrics
        self.merge_counts = held.merge_counts
        self.best = Best(held)
        lead = context.rounds.lead if context.rounds.mode == "async" else None
        self.pace = Pace(lead, context.rounds.min_interval_s)
        self.exchanges = False
        self.ordered = False
        self._members = members
        self.note_state(policy.state())

    @property
    def by_wish(self) -> bool:
        """Whether the node is meant to be alone."""
        return self._context.policy == company.BY_WISH or not len(self._members)

    @property
    def idle(self) -> bool:
        """Whether neither a round, nor its commit, nor the beginning of a run is under way."""
        idle = self.policy.phase == Activity.IDLE and self.policy.round <= self.round
        return idle and not self.under_way

    def active(self, life: Life) -> bool:
        """Tell whether the node takes part in the rounds of its peers; see the file's header."""
        if life == Life.PAUSED:
            return not self.idle
        return life != Life.FINISHED or not company.never(self.merge_counts, self.by_wish)

    def following(self, beginning: Snapshot) -> Run:
        """Return the next run, whose beginning is durable."""
        run = Run(
            self._context,
            self._members,
            self._facts,
            self._anew(),
            beginning,
            self._anew,
            self._documents,
        )
        run.wait.alone = self.ordered
        return run

    def under(self, parts: Parts) -> Run:
        """Return this run under other settings, or the end of it, if it is to begin anew."""
        held = self.best.of(self.policy.state(), self.metrics)
        held = replace(held, merge_counts=self.merge_counts, redone=self.redone)
        run = Run(
            parts.context,
            self._members,
            parts.facts,
            parts.anew() if parts.begins else parts.policy,
            held,
            parts.anew,
            self._documents,
        )
        run.begun, run.exchanges = self.begun, self.exchanges
        run.wait = replace(self.wait, context=parts.context)
        return run

    def begin_under(self) -> list[ev.Effect]:
        """Return the beginning of a run under other settings, to be made durable."""
        self.under_way, self.ordered = True, self.begun
        return [ev.Adopt(Snapshot(self._anew().state(), {}, redone=self.redone + 1))]

    def behind(self, number: int) -> frozenset[str]:
        """Return the live peers that have not reached a round, if rounds wait for peers."""
        if self._context.rounds.mode == "async":  # no round waits for anybody
            return frozenset()
        most = self._context.rounds.max or number
        live = {*self._members.live()} - self._members.inactive
        limit = min(number, most) if len(self._members) > 1 else 0
        return frozenset(peer for peer in live if self._members[peer].round < limit)

    def adopted(self, snapshot: Snapshot) -> None:
        """Note that a snapshot of this run is durable."""
        self.metrics, self.merge_counts = snapshot.metrics, snapshot.merge_counts
        self.round = snapshot.policy.round

    def note_state(self, state: PolicyState) -> None:
        """Store the digest of a round's state, if all nodes are to hold the same state."""
        sync = self._context.rounds.mode == "sync"
        if self.policy.shared_state and sync and state.round:
            self.agreement.adopted(state.round, state.tensors.digest)

    def tell(self, now: float, event: ev.Event) -> list[ev.Effect]:
        """Pass an event to the policy; complete the snapshots that the policy adopts."""
        if isinstance(event, ev.Received | ev.Delivered | ev.Undelivered):
            self._foreign = max(self._foreign, event.message.round, self.round + 1)
        effects = list(self.policy.handle(now, event))
        kinds = {type(effect) for effect in effects}
        self.exchanges = self.exchanges or ev.Send in kinds
        if ev.Adopt not in kinds:
            return effects
        self._kept = self.policy.state()
        return company.counted(self.merge_counts, self.redone, self.best.in_snapshots(effects))

    def restore(self) -> bool:
        """Put a policy that failed back to what it adopted last, without what peers said since.

        False if no peer has said anything since: then the policy failed by itself.
        """
        if self._foreign <= self.round:
            return False
        self.policy, self._foreign = self._anew(self._kept), 0
        return True


def ended(snapshot: Snapshot) -> ev.Record:
    """Return the record of a round that is durable."""
    metrics, number = snapshot.metrics, snapshot.policy.round
    shown = ", ".join(f"{key} {metrics[key]:.4g}" for key in sorted(metrics))
    facts: dict[str, Json] = {"round": number, **metrics}
    text = f"round {number} adopted" + (f": {shown}" if shown else "")
    return ev.Record("round.adopted", text, "info", facts)


def again(kind: str, reason: str, timer: str, failures: int) -> list[ev.Effect]:
    """Return a record of what failed, and the timer for the next try. failures: in a row."""
    delay = min(BACKOFF_MAX_S, 2.0 ** (failures - 1))
    text = f"{reason.rstrip('.')}; trying again in {delay:g} s"
    return [ev.Record(kind, text, "error"), ev.SetTimer(timer, delay)]
