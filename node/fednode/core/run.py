"""The rounds of a node, and its policy.

A node takes part in the rounds of its peers ("active") unless it is paused, or has run all its
rounds and merged the prompts of no peer. Each message of the kernel and each answer says it. A node
that is not active is to its peers like a node that is gone: no round waits for it, the first round
neither. It sends nothing of its policy, because prompts of rounds that it ran alone are for nobody.
A node that finished with merged prompts stays active: late nodes take over its state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from fednode.core import company
from fednode.core import events as ev
from fednode.core.agreement import Agreement
from fednode.core.best import Best
from fednode.core.gate import Gate
from fednode.core.life import Life
from fednode.core.members.table import Members
from fednode.core.pace import Pace
from fednode.core.policy import Activity, NodeContext, Policy
from fednode.core.types import Json, PolicyState, Snapshot
from fednode.core.waiting import FirstWait

BACKOFF_MAX_S: Final = 60.0


Anew = Callable[[PolicyState], Policy]
"""Return a node's policy as it was stored."""


class Run:
    """The rounds of a node, and its policy.

    round: the last that is durable. begun: the wait before the first round has ended. metrics,
    merge_counts: those of the last durable snapshot. exchanges: the policy has sent anything.
    """

    def __init__(
        self,
        context: NodeContext,
        members: Members,
        facts: Mapping[str, str],
        policy: Policy,
        held: Snapshot,
        anew: Anew,
    ) -> None:
        """Begin with a policy. anew: returns it as it was stored."""
        self.policy = policy
        self._kept, self._foreign = policy.state(), 0  # what it adopted last; newest round heard of
        self._context, self._anew = context, anew
        self.round = policy.round
        self.gate = Gate(context, facts, members)
        self.agreement = Agreement(context.rounds.deadline_s)
        self.wait = FirstWait(context, members, policy.round)
        self.begun = False
        self.metrics: Mapping[str, float] = held.metrics
        self.merge_counts = held.merge_counts
        self.best = Best(held)
        lead = context.rounds.lead if context.rounds.mode == "async" else None
        self.pace = Pace(lead, context.rounds.min_interval_s)
        self.exchanges = False
        self._members = members
        self.note_state(policy.state())

    @property
    def by_wish(self) -> bool:
        """Whether the node is meant to be alone."""
        return self._context.policy == company.BY_WISH or not len(self._members)

    @property
    def idle(self) -> bool:
        """Whether neither a round nor its commit is under way."""
        return self.policy.phase == Activity.IDLE and self.policy.round <= self.round

    def active(self, life: Life) -> bool:
        """Tell whether the node takes part in the rounds of its peers; see the file's header."""
        if life == Life.PAUSED:
            return not self.idle
        return life != Life.FINISHED or not company.never(self.merge_counts, self.by_wish)

    def behind(self, number: int) -> frozenset[str]:
        """Return the live peers that have not reached a round, if rounds wait for peers."""
        if self._context.rounds.mode == "async":  # no round waits for anybody
            return frozenset()
        most = self._context.rounds.max or number
        limit = min(number, most) if len(self._members) > 1 else 0
        return frozenset(
            peer for peer in self._members.active() if self._members[peer].round < limit
        )

    def adopted(self, snapshot: Snapshot) -> None:
        """Note that a snapshot of this run is durable."""
        self.metrics, self.merge_counts = snapshot.metrics, snapshot.merge_counts
        self.round = snapshot.policy.round

    def note_state(self, state: PolicyState) -> None:
        """Store the digest of a round's state, if all nodes are to hold the same state."""
        sync = self._context.rounds.mode == "sync"
        if self.policy.shared_state and sync and state.round:
            self.agreement.adopted(state.round, state.digest)

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
        return company.counted(self.merge_counts, self.best.in_snapshots(effects))

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
