"""Rounds that a whole mesh runs together: tune, tell everyone, wait, merge; once or more a round.

Averaging, Fed-DPT, DiPrompT and PLAN are methods (method.py); this engine runs their rounds. A
round goes through the method's `stages`. In each stage a node runs a job, sends a contribution to
every live peer, and merges all contributions, sorted by sender (its own in the wire's number
format, as its peers see it). If only some nodes are sampled for the round (exchange.py), the others
run no job and send nothing, but merge the same contributions. After the last stage a node measures
the prompts that it will use, merged or personal (personal.py), and adopts the round.

    Idle -> Training -> Exchanging -> (next stage) ... -> Measuring -> Adopting -> Idle

A stage ends when every awaited peer (stragglers.py) was heard and has acknowledged, at the deadline
at the latest. An undelivered message is sent again while its peer is live. If most members are two
rounds ahead, the node takes over their state; no round waits for that (catchup.py). Phases on the
wire: the stages' names, "again" (a request to repeat the messages since a round), and those of
catchup.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fednode.core import events as ev
from fednode.core.facts import merged_digest
from fednode.core.merge.numbers import roundtrip
from fednode.core.policy import ADOPTING, CATCH_UP, DEADLINE, EXCHANGING, IDLE, RESEND, Policy
from fednode.core.rounds.catchup import QUESTIONS, STATE, WANT, CatchUp, adopted_round
from fednode.core.rounds.exchange import AGAIN, Exchange, participants
from fednode.core.rounds.method import Contribution, MethodHooks, MethodState, Round
from fednode.core.rounds.personal import Choice, Personal
from fednode.core.rounds.stragglers import STRAGGLERS, Stragglers
from fednode.core.types import EMPTY, MEASURE, Message, PolicyState, Report, Snapshot, Tensors


@dataclass(slots=True)
class RoundNotes:
    """The engine's notes on the round under way.

    own: this node's own contributions as its peers see them, by stage; none if it does not take
    part. base: the digest of what this node began the stage from, which its contribution names.
    merged: digest of the contributions that the stage before merged, "" in the first stage. tuned:
    what the first stage's job tuned, if it may serve as personal prompts. givers: peers whose
    contributions were merged last.
    """

    own: dict[str, Contribution] = field(default_factory=dict)
    base: str = ""
    merged: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    tuned: Tensors = EMPTY
    givers: tuple[str, ...] = ()


class Judged(NamedTuple):
    """The contributions to merge, a note on those that began elsewhere, and whether few did."""

    heard: Mapping[str, Message]
    note: str
    most_agree: bool


def judge(
    now: Round, heard: Mapping[str, Message], own: str, merged: str, trusting: bool
) -> Judged:
    """Compare what contributions began from with what this node merges into.

    A contribution to the first stage names the state after the last round; all of them are merged.
    In a later stage it names the contributions that its sender merged before. If more than half of
    all contributors merged the same as this node, the others are left out: a liar, whose set no
    honest node shares, stops nobody. Otherwise a robust merge takes all contributions and bears
    with some liars, and a trusting merge takes none.

    own: the digest that this node's own contribution named, "" if it did not contribute; since
    then a catch-up may have changed what the node merges into. merged: that of the contributions
    merged before, "" in the first stage.
    """
    base = merged or now.held.digest
    same = {peer: message for peer, message in heard.items() if message.base == base}
    most = 2 * (len(same) + (own == base)) > len(heard) + bool(own)
    names = ", ".join(peer for peer in heard if peer not in same)
    merged_others = "merged prompts of other nodes than this node did"
    what = merged_others if merged else "began it with other prompts than this node"
    note = f"round {now.number}: {names} {what}" if names else ""
    if not merged or not names:
        return Judged(heard, note, most)
    if most:
        return Judged(same, note, most)
    return Judged({} if trusting else heard, note, most)


class Rounds(Policy):
    def __init__(self, method: MethodHooks, state: PolicyState) -> None:
        super().__init__(method)
        self.method, context = method, self.context
        held = MethodState(state.tensors, state.carry, state.arrays)
        self.now = Round(state.round, method.stages[0], held, held)
        self.stragglers = Stragglers.thaw(state.data.get(STRAGGLERS))
        self._adopted, self._used = state.round, state.tuned  # last adopted round; prompts in use
        self._notes = RoundNotes()
        self._choice: Choice | None = None  # after the last merge
        self._personal = Personal(method, context.guard.merged_rise if method.personal else None)
        self._exchange = Exchange(context, self.stragglers, participants(method.config))
        drifts, trusting = method.drifts, method.trusting
        self._catch_up = CatchUp(self._exchange, drifts=drifts, trusting=trusting)
        self._catch_up.adopted(state.round, held)

    # The kernel's calls ---------------------------------------------------------------------------

    def state(self) -> PolicyState:
        held, data = self.now.held, {STRAGGLERS: self.stragglers.freeze()}
        return PolicyState(self._adopted, held.shared, self._used, held.carry, data, held.arrays)

    @property
    def round(self) -> int:
        return self._adopted

    @property
    def state_bytes(self) -> int:
        """Return how large the state of another node may be, if it grows with the members."""
        return self.method.state_bytes

    def fault(self, message: Message) -> str:
        phase, tensors, held = message.phase, message.tensors, self.now.held
        if phase in {AGAIN, WANT}:
            return "" if not tensors else f"phase {phase!r} carries no tensors"
        if phase == STATE:
            fault = self.method.state_fault(held, tensors)
            fits = not fault and adopted_round(message) >= 0
            why = f": {fault}" if fault else ""
            return "" if fits else f"phase {phase!r} does not carry this policy's shared state{why}"
        if phase not in self.method.stages:
            return f"{self.name} has no phase {phase!r}"
        return self.method.fault(phase, held, tensors)

    def _react(self, event: ev.Event) -> list[ev.Effect]:
        match event:
            case ev.PeerUp(peer=peer):
                return self._exchange.peer_up(peer)
            case ev.Claimed(peer=peer, round=number, digest=digest):
                return self._claim(peer, number, digest)
            case ev.PeerDown(peer=peer):
                self._exchange.peer_down(peer)
                asked = self._catch_up.gone(peer)
                return [*asked, *self._move(), *self._advance()]
            case ev.Received(message=message):
                return self._hear(message)
            case ev.Delivered(to=peer, message=message):
                self._exchange.acked(peer, message)
                return self._advance()
            case ev.Undelivered(to=peer, message=message, code=code):
                return self._undelivered(peer, message, code)
            case ev.TimerFired(name=name) if name == RESEND:
                stage = self.now.stage if self.step == EXCHANGING else ""
                return self._exchange.retransmit(self.now.number, stage)
            case ev.TimerFired(name=name) if name == CATCH_UP:
                ended = [*self._catch_up.time_is_up(), *self._move()]
                return [*ended, *(self._look_ahead() if self._under_way else [])]
        return []

    @property
    def _under_way(self) -> bool:
        """Whether the round under way can still be left for a later one."""
        return self.step not in (IDLE, ADOPTING)

    # A round, step by step ------------------------------------------------------------------------

    def _begin(self, event: ev.RoundDue) -> list[ev.Effect]:
        self.stragglers.behind = event.behind
        if event.members is not None:
            self._exchange.known = set(event.members) - {self.context.name}
        number, held = event.round, self.now.held
        members = self._exchange.known | {self.context.name}
        self.now = Round(number, self.method.stages[0], held, held, members=frozenset(members))
        self._notes, self._choice = RoundNotes(), None
        self._exchange.begin(number)
        self._catch_up.number = number
        return self._go(lambda: [*self._catch_up.begin(), *self._start_stage()])

    def _start_stage(self) -> list[ev.Effect]:
        if not self._exchange.participates_now:
            return self._exchange_now(None)
        return self._tune(self.method.job(self.now))

    def _trained(self, report: Report) -> list[ev.Effect]:
        return self._go(lambda: self._continue(report))

    def _continue(self, report: Report) -> list[ev.Effect]:
        """Go on after a job, if catch-up has not ended the round meanwhile."""
        notes, job = self._notes, self.step.job
        if self._choice is not None:
            return self._choose(self._choice, report)
        notes.metrics = {**notes.metrics, **report.metrics}
        if job is not None and job.stage == MEASURE:
            return self._finish(job.tensors)
        notes.tuned = self._personal.candidate(self.now, report) or notes.tuned
        return self._contribute(report)

    def _contribute(self, report: Report) -> list[ev.Effect]:
        now, context = self.now, self.context
        sent, dtype = self.method.contribution(now, report), self.method.dtype(now.stage)
        self.now = replace(now, draft=replace(sent.draft, carry=report.carry))
        message = replace(
            context.message(now.number, now.stage, sent.tensors),
            base=self._notes.merged or now.held.digest,
            samples=report.samples,
            dtype=dtype,
        )
        own = Contribution(context.name, roundtrip(sent.tensors, dtype), report.samples)
        self._notes.own[now.stage] = own
        return self._exchange_now(message)

    def _exchange_now(self, own: Message | None) -> list[ev.Effect]:
        """Wait for the contributions to a stage. own: this node's, None if it takes no part."""
        now = self.now
        self._notes.base = self._notes.merged or now.held.digest
        self.step = EXCHANGING
        opened = self._exchange.broadcast(own)
        return [*opened, *self._look_ahead(), *self._advance()]

    def _advance(self) -> list[ev.Effect]:
        if self.step != EXCHANGING:
            return []
        heard = self._exchange.complete(self.now.number, self.now.stage)
        return [] if heard is None else [ev.CancelTimer(DEADLINE), *self._merge(heard)]

    def _give_up(self, now: float) -> list[ev.Effect]:
        number, stage = self.now.number, self.now.stage
        silent, deaf, heard = self._exchange.give_up(number, stage, now)
        said = f"{silent} sent nothing" if silent else "no live peer sent anything"
        if deaf:
            took = f"{deaf} did not acknowledge this node's contribution"
            said = f"{silent} sent nothing and {took}" if silent else took
        limit = "before the deadline (rounds.deadline_s)"
        text = f"round {number}: {said} {limit}; this node goes on without"
        return [ev.Record("round.deadline", text, "warning"), *self._merge(heard)]

    def _merge(self, heard: Mapping[str, Message]) -> list[ev.Effect]:
        if not self._notes.merged:
            self._rebase()
        own, merged = self._notes.own.get(self.now.stage), self._notes.merged
        if own is None and not heard:
            return self._abort(f"round {self.now.number}: no node that was drawn contributed")
        judged = judge(
            self.now, heard, self._notes.base if own else "", merged, self.method.trusting
        )
        if not merged:
            self.now = replace(self.now, base_agrees=judged.most_agree)
        if judged.note and not judged.heard:
            return self._abort(f"{judged.note}, and no majority agrees")
        given = {
            name: Contribution(name, message.tensors, message.samples)
            for name, message in judged.heard.items()
        }
        if own is not None:
            given[self.context.name] = own
        drifted = [ev.Record("round.drift", judged.note, "warning")] if judged.note else []
        return [*drifted, *self._merged(tuple(given[name] for name in sorted(given)))]

    def _merged(self, given: tuple[Contribution, ...]) -> list[ev.Effect]:
        """Merge a stage's contributions; go on to the next stage, or measure after the last."""
        now, stages, own = self.now, self.method.stages, self.context.name
        self._notes.givers = tuple(
            contribution.sender for contribution in given if contribution.sender != own
        )
        try:
            received = self.method.received(now, given)
            draft = self.method.merge(now, received)
            note = self.method.note(now.draft, draft)
        except Exception as cause:
            return self._unmerged(given, cause)
        text = f"round {now.number}: {note}"
        said = [ev.Record("merge.left_out", text, "warning")] if note else []
        self.now = now = replace(now, draft=draft)
        if now.stage == stages[-1]:
            fault = self.context.norm_fault(draft.packed())  # as a peer would find it
            if fault:
                return [*said, *self._abort(f"round {now.number}: the merged prompts' {fault}")]
            return [*said, *self._end_stages()]
        self._notes.merged = merged_digest(
            {contribution.sender: contribution.tensors for contribution in given}
        )
        following = stages[stages.index(now.stage) + 1]
        self.now = replace(now, stage=following, heard={**now.heard, now.stage: received})
        return [*said, *self._start_stage()]

    def _unmerged(self, given: tuple[Contribution, ...], fault: Exception) -> list[ev.Effect]:
        """Merge what is left without the contributions on which the method fails alone.

        All nodes leave out the same ones. If there is none, the round ends without a merge.
        """
        number, left_out, rest = self.now.number, list[ev.Effect](), list[Contribution]()
        for one in given:
            try:
                self.method.merge(self.now, self.method.received(self.now, (one,)))
            except Exception as cause:
                text = f"round {number}: the contribution of {one.sender} cannot be merged"
                peer = {"peer": one.sender}
                left_out.append(ev.Record("merge.failed", text, "error", peer, cause))
            else:
                rest.append(one)
        if left_out and rest:
            return [*left_out, *self._merged(tuple(rest))]
        text = f"round {number}: the contributions cannot be merged"
        said = left_out or [ev.Record("merge.failed", text, "error", cause=fault)]
        return [*said, *self._abort(text)]

    def _abort(self, why: str) -> list[ev.Effect]:
        """End the round with the prompts that it began with."""
        self.now = replace(self.now, draft=replace(self.now.held, carry=self.now.draft.carry))
        self._notes.givers = ()
        text = f"{why}; this node keeps its prompts from before"
        return [ev.Record("round.aborted", text, "warning"), *self._end_stages()]

    def _end_stages(self) -> list[ev.Effect]:
        choice = self._personal.choose(self.now, self._used, self._notes.tuned)
        return self._choose(choice, None)

    def _choose(self, choice: Choice, report: Report | None) -> list[ev.Effect]:
        """Go on with the choice between merged and personal prompts; then measure the chosen."""
        try:
            job = choice.send(report) if report else next(choice)
        except StopIteration as end:
            (used, why), self._choice = end.value, None
            said = ev.Record("merge.unused", f"round {self.now.number}: {why}")
            measure = replace(self._personal.trial(self.now, used), measure=True)
            return [*([said] if why else []), *self._tune(measure)]
        self._choice = choice
        return self._tune(job)

    def _finish(self, used: Tensors) -> list[ev.Effect]:
        held = self.now.draft
        self.now = replace(self.now, held=held)
        self.step = ADOPTING
        self._adopted, self._used = self.now.number, used
        self._catch_up.adopted(self._adopted, held)
        snapshot = Snapshot(self.state(), self._notes.metrics)
        return [ev.Adopt(snapshot, self._notes.givers)]

    # Peers ----------------------------------------------------------------------------------------

    def _hear(self, message: Message) -> list[ev.Effect]:
        sender, number = message.sender, self.now.number
        if message.phase == AGAIN:
            return self._exchange.repeat(sender, message.round)
        if message.phase in QUESTIONS:
            return [*self._catch_up.question(message), *self._move()]
        if message.round <= self._adopted:  # this node has ended that round
            return []
        if not self._exchange.store(message, number, self.method.stages[-1]):
            return []
        claimed = list[ev.Effect]()
        if message.phase == self.method.stages[0]:
            claimed = self._claim(sender, message.round - 1, message.base)
        if not self._under_way:
            return claimed
        return [*claimed, *self._look_ahead(), *self._advance()]

    def _undelivered(self, peer: str, message: Message, code: str) -> list[ev.Effect]:
        effects = self._catch_up.no_state(peer) if message.phase == WANT else []
        if code in {"unreachable", "busy"} and peer in self._exchange.live:
            effects += self._exchange.lost(peer, message)
        else:
            self._exchange.acked(peer, message)
        return [*effects, *self._move(), *self._advance()]

    # Catch-up -------------------------------------------------------------------------------------

    def _claim(self, peer: str, number: int, digest: str) -> list[ev.Effect]:
        decided = self._catch_up.claim(peer, number, digest)
        return [*decided, *self._move()] if decided else []

    def _rebase(self) -> None:
        """Merge into the state that catch-up found after the round before, if any."""
        state, now = self._catch_up.before(), self.now
        if state is not None:
            self.now = replace(now, held=now.held.taking(state), draft=now.draft.taking(state))

    def _look_ahead(self) -> list[ev.Effect]:
        return self._catch_up.look_ahead(self.now.number + 1)

    def _move(self) -> list[ev.Effect]:
        """Call _go now if the round waits for peers; otherwise it waits for the job or commit."""
        return self._go(list) if self.step == EXCHANGING else []

    def _go(self, on: Callable[[], list[ev.Effect]]) -> list[ev.Effect]:
        """End the round with the state that catch-up found after it, if any; else go on."""
        now, found = self.now, self._catch_up.after()
        if found is None:
            return on()
        self._notes.metrics = {}
        self._notes.givers = (found.giver,) if found.giver else ()
        draft = now.held if found.tensors is None else now.held.taking(found.tensors)
        self.now = replace(now, number=found.number, draft=draft)
        late = found.number + 1 - now.number
        text = f"this node was {late} rounds behind the others: it goes on from its own prompts"
        skipped = ev.Record("round.skipped", text, "warning", {"round": found.number})
        used = self._personal.kept(now, self._used, draft)
        notes = [skipped] if found.tensors is None else []
        return [*self._catch_up.cancel_timers(), *notes, *self._finish(used)]


class Method(MethodHooks):
    policy = Rounds
