"""Rounds that a whole mesh runs together: tune, tell everyone, wait, merge; once or more a round.

Averaging, Fed-DPT, DiPrompT and PLAN are methods (method.py); this engine runs their rounds. A
round goes through the method's `stages`. In each stage a node runs a job, sends a contribution to
every live peer, and merges all contributions, sorted by sender (its own in the wire's number
format, as its peers see it). If only some nodes are drawn for the round (draw.py), the others run
no job and send nothing, but merge the same contributions. After the last stage a node measures the
prompts that it will use, merged or personal (personal.py), and adopts the round.

    Idle -> Training -> Exchanging -> (next stage) ... -> Measuring -> Adopting -> Idle

A stage ends when every awaited peer (stragglers.py) was heard and has acknowledged, at the deadline
at the latest. An undelivered message is sent again while its peer is live. If half of the members
are two rounds ahead, the node takes over their state; no round waits for that (catchup.py). Phases
on the wire: the stages' names, "again" (a request to repeat the messages since a round), and those
of transfer.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fednode.core.events import (
    Adopt,
    Adopted,
    CancelTimer,
    Delivered,
    Effect,
    Event,
    PeerDown,
    PeerUp,
    Received,
    Record,
    RoundDue,
    SetTimer,
    TimerFired,
    Tune,
    Tuned,
    TuneFailed,
    Undelivered,
)
from fednode.core.facts import contributors
from fednode.core.merge.numbers import roundtrip
from fednode.core.policy import CATCH_UP, DEADLINE, RESEND, NodeContext, Policy
from fednode.core.rounds.catchup import CatchUp, Situation
from fednode.core.rounds.draw import wanted
from fednode.core.rounds.drift import first_stage, later_stage
from fednode.core.rounds.exchange import AGAIN, Exchange
from fednode.core.rounds.method import Contribution, Method, MethodState, Round
from fednode.core.rounds.personal import Personal
from fednode.core.rounds.progress import (
    Adopting,
    Comparing,
    Exchanging,
    Idle,
    Measuring,
    Progress,
    Training,
    TrainingOwn,
    Waiting,
    Working,
)
from fednode.core.rounds.stragglers import STRAGGLERS, Stragglers
from fednode.core.rounds.transfer import QUESTIONS, STATE, VOUCH, WANT, WITNESS, Transfer
from fednode.core.types import Job, Message, PolicyState, Report, Snapshot, Tensors


class Rounds:
    """The mesh-wide rounds of one node; see the file's header."""

    shared_state: Final = True
    repeatable: Final = QUESTIONS | {AGAIN}
    shown = Policy.shown

    def __init__(self, method: Method, context: NodeContext, state: PolicyState) -> None:
        self.method = method
        self.context = context
        self.name = context.policy
        held = MethodState(state.tensors, state.carry, state.arrays)
        self.now = Round(state.round, method.stages[0], held, held)
        self.stragglers = Stragglers.thaw(state.data.get(STRAGGLERS))
        self._adopted, self._used = state.round, state.tuned  # last adopted round; prompts in use
        self._waiting: Waiting = Idle()
        self._progress = Progress()
        self._personal = Personal(method, context.guard.merged_rise)
        self._exchange = Exchange(context, self.stragglers, wanted(method.config))
        self._holders = frozenset[str]()  # peers with the most common prompts, if ours differ
        self._catch_up = CatchUp(
            context, self.stragglers, drifts=method.drifts, trusting=method.trusting
        )
        self._catch_up.adopted(state.round, held)

    # The kernel's calls ---------------------------------------------------------------------------

    def state(self) -> PolicyState:
        """Return all that must survive a restart."""
        held, data = self.now.held, {STRAGGLERS: self.stragglers.freeze()}
        return PolicyState(self._adopted, held.shared, self._used, held.carry, data, held.arrays)

    @property
    def phase(self) -> str:
        """Return "idle", "tuning", "exchanging" or "adopting"."""
        return self._waiting.phase

    def fault(self, message: Message) -> str:
        """Return what is wrong with a message's phase, names or shapes; "" if nothing is."""
        phase, found = message.phase, message.tensors.shapes
        if phase in {AGAIN, WANT, WITNESS, VOUCH}:
            return "" if not found else f"phase {phase!r} carries no tensors"
        if phase == STATE:
            fits = found == self.now.held.packed().shapes and Transfer.number(message) >= 0
            return "" if fits else f"phase {phase!r} does not carry this policy's shared state"
        if phase not in self.method.stages:
            return f"{self.name} has no phase {phase!r}"
        return self.method.shape_fault(phase, self.now.held, found)

    def handle(self, now: float, event: Event) -> Sequence[Effect]:
        """Take one event; return what to do, in order."""
        match event:
            case RoundDue() if isinstance(self._waiting, Idle):
                return self._due(event)
            case Tuned(job=job, report=report) if job == self._job:
                return self._trained(report)
            case TuneFailed(job=job) if job == self._job:
                self._waiting = Idle()
            case Adopted() if isinstance(self._waiting, Adopting):
                self._waiting = Idle()
                return self._catch_up.answer_owed(self._situation)
            case PeerUp(peer=peer):
                return self._exchange.up(peer)
            case PeerDown(peer=peer):
                self._exchange.down(peer)
                asked = self._catch_up.gone(self._situation, peer)
                return [*asked, *self._move(), *self._advance()]
            case Received(message=message):
                return self._hear(message)
            case Delivered(to=peer, message=message):
                self._exchange.mail.settle(peer, message)
                return self._advance()
            case Undelivered(to=peer, message=message, code=code):
                return self._undelivered(peer, message, code)
            case TimerFired(name=name):
                return self._timer(now, name)
            case _:
                pass
        return []

    def _timer(self, now: float, name: str) -> list[Effect]:
        round_, exchanging = self.now, isinstance(self._waiting, Exchanging)
        if name == DEADLINE and exchanging:
            return self._give_up(now)
        if name == RESEND:
            again = [*self._exchange.resend(), *self._catch_up.resend()]
            asked = self._exchange.ask_again(round_.number, round_.stage) if exchanging else []
            return [*again, *asked]
        if name != CATCH_UP:
            return []
        ended = [*self._catch_up.time_is_up(self._situation), *self._move()]
        self._catch_up.wait_no_more()
        waits = self.phase in {"tuning", "exchanging"}
        return [*ended, *(self._look_ahead(self.now.number + 1) if waits else [])]

    @property
    def _job(self) -> Job | None:
        return self._waiting.job if isinstance(self._waiting, Working) else None

    # A round, step by step ------------------------------------------------------------------------

    def _due(self, event: RoundDue) -> list[Effect]:
        self.stragglers.behind = event.behind
        others = set(event.members) - {self.context.name}
        self._exchange.known = others or self._exchange.known
        held = self.now.held
        if event.start is not None:
            held, self._used = self.method.using(held, event.start), event.start
        return self._begin(event.round, held)

    def _begin(self, number: int, held: MethodState) -> list[Effect]:
        self.now = Round(number, self.method.stages[0], held, held)
        self._progress = Progress()
        self._exchange.begin(number)
        holders, self._holders = self._holders & self._exchange.live, frozenset()
        moved = self._go()
        if moved:
            return moved
        self._catch_up.end_mending()
        asked = self._look_ahead(number) or self._catch_up.mend(self._situation, holders)
        return [*asked, *self._start_stage()]

    def _start_stage(self) -> list[Effect]:
        if self._exchange.takes_part_now:
            return self._work(Training(self.method.job(self.now)))
        return self._exchange_now(self._exchange.first_words())

    def _work(self, on: Working) -> list[Effect]:
        self._waiting = on
        return [Tune(on.job)]

    def _trained(self, report: Report) -> list[Effect]:
        moved = self._go()
        if moved:
            return moved
        progress, draft = self._progress, self.now.draft
        match self._waiting:
            case TrainingOwn() | Comparing() as ended:
                work, why = self._personal.after_job(self.now, ended, self._used, report)
                said = Record("merge.unused", f"round {self.now.number}: {why}")
                return [*([said] if why else []), *self._work(work)]
            case Measuring(job=job):
                progress.metrics = {**progress.metrics, **report.metrics}
                return self._finish(job.tensors)
            case _:
                progress.metrics = {**progress.metrics, **report.metrics}
                if self._personal.rise is not None and self.now.stage == self.method.stages[0]:
                    progress.tuned = self._personal.tuned(draft, report)
                return self._contribute(report)

    def _contribute(self, report: Report) -> list[Effect]:
        now, context = self.now, self.context
        told, dtype = self.method.contribution(now, report), self.method.dtype(now.stage)
        self.now = replace(now, draft=replace(told.draft, carry=report.carry))
        message = replace(
            context.message(now.number, now.stage, told.tensors),
            contributors=self._progress.merged or now.held.shared.digest,
            samples=report.samples,
            dtype=dtype,
        )
        own = Contribution(context.name, roundtrip(told.tensors, dtype), report.samples)
        self._progress.told[now.stage] = own
        return self._exchange_now(self._exchange.tell(message))

    def _exchange_now(self, said: list[Effect]) -> list[Effect]:
        """Wait for the contributions to a stage. said: this node's own, if it takes part."""
        now = self.now
        self._progress.base = self._progress.merged or now.held.shared.digest
        self._waiting = Exchanging()
        deadline = SetTimer(DEADLINE, self.context.rounds.deadline_s)
        again = self._exchange.remind_all(now.number, now.stage)
        return [*said, deadline, *again, *self._look_ahead(now.number + 1), *self._advance()]

    def _advance(self) -> list[Effect]:
        waiting, now = isinstance(self._waiting, Exchanging), self.now
        if not waiting or not self._exchange.enough(now.number, now.stage):
            return []
        return [CancelTimer(DEADLINE), *self._merge()]

    def _give_up(self, now: float) -> list[Effect]:
        number, stage, limit = self.now.number, self.now.stage, self.context.rounds.deadline_s
        late = self._exchange.missing(number, stage)
        missing = self.stragglers.missed(late, number, now, limit) or "any live peer"
        text = f"round {number}, {stage}: the deadline passed without {missing}"
        return [Record("round.deadline", text, "warning"), *self._merge()]

    def _merge(self) -> list[Effect]:
        now, method, exchange = self.now, self.method, self._exchange
        heard = exchange.heard(now.number, now.stage)
        base, own = self._progress.base, self._progress.told.get(now.stage)
        if own is None and not heard:
            return self._abort(f"round {now.number}: no node that was drawn contributed")
        if self._progress.merged:
            found = later_stage(now, heard, base, trusting=method.trusting, own=bool(own))
        else:
            told = base if own else ""
            found = first_stage(now, heard, told, trusting=method.trusting)
            self._holders = found.holders if method.drifts else frozenset()
        self.now = replace(now, base_agrees=found.base_agrees)
        notes: list[Effect] = [Record("round.drift", found.note, "warning")] if found.note else []
        if found.refused:
            return self._abort(f"{found.note}; no majority merged the same as this node")
        given = {
            name: Contribution(name, one.tensors, one.samples) for name, one in found.heard.items()
        }
        if own is not None:
            given[self.context.name] = own
        return [*notes, *self._merged(tuple(given[name] for name in sorted(given)))]

    def _merged(self, given: tuple[Contribution, ...]) -> list[Effect]:
        """Merge a stage's contributions; go on to the next stage, or measure after the last."""
        now, stages, own = self.now, self.method.stages, self.context.name
        self._progress.givers = tuple(one.sender for one in given if one.sender != own)
        draft = self.method.merge(now, given)
        self.now = now = replace(now, draft=draft)
        if now.stage == stages[-1]:
            fault = self.context.norm_fault(draft.packed())  # as a peer would find it
            if fault:
                return self._abort(f"round {now.number}: the merged prompts' {fault}")
            return self._choose()
        self._progress.merged = contributors({one.sender: one.tensors for one in given})
        following = stages[stages.index(now.stage) + 1]
        self.now = replace(now, stage=following, heard={**now.heard, now.stage: given})
        return self._start_stage()

    def _abort(self, why: str) -> list[Effect]:
        """End the round with the prompts that it began with."""
        self.now = replace(self.now, draft=replace(self.now.held, carry=self.now.draft.carry))
        text = f"{why}: the last prompts are kept"
        return [Record("round.aborted", text, "warning"), *self._choose()]

    def _choose(self) -> list[Effect]:
        """Measure what was merged, or compare it with personal prompts."""
        return self._work(self._personal.after_merge(self.now, self._used, self._progress.tuned))

    def _finish(self, used: Tensors) -> list[Effect]:
        held = self.now.draft
        self.now = replace(self.now, held=held)
        self._waiting = Adopting()
        self._adopted, self._used = self.now.number, used
        self._catch_up.adopted(self._adopted, held)
        snapshot = Snapshot(self.state(), self._progress.metrics)
        return [Adopt(snapshot, self._progress.givers)]

    # Peers ----------------------------------------------------------------------------------------

    def _hear(self, message: Message) -> list[Effect]:
        sender, number = message.sender, self.now.number
        if message.phase == AGAIN:
            return self._exchange.repeat(sender, message.round)
        if message.phase in QUESTIONS:
            return [*self._catch_up.question(self._situation, message), *self._move()]
        if not self._exchange.takes_part(sender, message.round):
            return []  # it was not drawn, or it knows other members than this node
        if message.round == number and message.phase == self.method.stages[-1]:
            # In time only with the last stage: a peer that sends only the first makes all wait.
            self.stragglers.kept(sender)
        self._exchange.take(message, number)
        if self.phase not in {"tuning", "exchanging"}:
            return []
        asked = self._look_ahead(number + 1)
        if self.phase == "tuning":
            return asked
        reminded = self._exchange.remind(message, self.now.number, self.now.stage)
        return [*asked, *reminded, *self._advance()]

    def _undelivered(self, peer: str, message: Message, code: str) -> list[Effect]:
        again = code in {"unreachable", "busy"} and peer in self._exchange.live
        if message.phase in QUESTIONS:
            found = self._catch_up.undelivered(self._situation, peer, message, again)
            return [*found, *self._move()]
        if again:
            return self._exchange.lost(peer, message)
        self._exchange.mail.settle(peer, message)
        return self._advance()

    # Catch-up -------------------------------------------------------------------------------------

    @property
    def _situation(self) -> Situation:
        now, peers = self.now, self._exchange
        return Situation(
            now.number, self._adopted, now.held, peers.live, peers.known, peers.mail.newest
        )

    def _look_ahead(self, beyond: int) -> list[Effect]:
        return self._catch_up.look_ahead(self._situation, beyond)

    def _move(self) -> list[Effect]:
        """Call _go now if the round waits for peers; otherwise it waits for the job or commit."""
        return self._go() if isinstance(self._waiting, Exchanging) else []

    def _go(self) -> list[Effect]:
        """Go to the destination that catch-up found; return [] if the round under way continues."""
        to, now, method = self._catch_up.take_destination(), self.now, self.method
        if to is None:
            return []
        told = bool(self._progress.told)
        drifted = to.number == now.number - 1 and method.drifts
        first = isinstance(self._waiting, Exchanging) and now.stage == method.stages[0]
        if drifted and first and to.tensors is not None:
            # This node has sent its contribution. The merge starts from the others' state.
            held, draft = now.held.taking(to.tensors), now.draft.taking(to.tensors)
            self.now = replace(now, held=held, draft=draft)
            return []
        again = drifted and not told
        if to.number < now.number and not again:
            return []
        draft = now.held if to.tensors is None else now.held.taking(to.tensors)
        effects: list[Effect] = [CancelTimer(DEADLINE)]
        if not self._catch_up.resting:
            effects.append(CancelTimer(CATCH_UP))
        if again:  # the round under way goes on from the others' state
            self.now = replace(now, held=draft, draft=draft)
            return [*effects, *self._start_stage()]
        number = min(to.number, self._catch_up.most(now.number))
        self.now, self._progress.metrics = replace(now, number=number, draft=draft), {}
        if to.tensors is None:
            text = f"{number + 1 - now.number} rounds behind: goes on with the own prompts"
            effects.append(Record("round.skipped", text, "warning", {"round": number}))
        apart = self._personal.apart(now, self._used)
        return [*effects, *self._finish(self._used if apart else method.used(draft))]
