"""ZeroDFL (IJCNN 2025): every node tunes, sends its rows to a few peers, and mixes received rows.

A round in sync is: tune; send; wait; merge; adopt. A round in async is: merge received rows; tune;
send; adopt. Recipients are drawn by equations 1 and 2. The last round's tuned prompts are adopted
unmerged, as the published tables test them.

In async no node waits for rows. Rows that arrive while a node stores its last round are in time for
the next round, if the merge comes first. A merge right after the tuning would replace the newly
tuned rows by rows of the round before, and nodes of equal speed would lose every second step.

Phases on the wire: "prompts" (rows), and in sync "done": the sender has finished its round, and did
not draw the receiver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Self

from fednode.core import events as ev
from fednode.core.policy import DEADLINE, RESEND, RESEND_S, Activity, NodeContext
from fednode.core.rounds.progress import Idle, Training
from fednode.core.rounds.proof import quorum, reached
from fednode.core.settings import Barrier, RoundSettings
from fednode.core.types import EMPTY, Array, Json, Message, PolicyState, Report, Snapshot, Tensors
from fednode.policies.zerodfl import rows
from fednode.policies.zerodfl.accounting import paper_bytes
from fednode.policies.zerodfl.config import ZeroDFLConfig
from fednode.policies.zerodfl.pool import Pool, merge
from fednode.policies.zerodfl.recipients import EPSILON, draw_recipients, join
from fednode.policies.zerodfl.state import ROWS, Memory
from fednode.policies.zerodfl.trial import Trial
from fednode.policies.zerodfl.waiting import Adopting, Exchanging, Judging, Waiting

Metrics = Mapping[str, float]


class ZeroDFL:
    """ZeroDFL's state machine; see the file's header and waiting.py."""

    name: ClassVar[str] = "zerodfl"
    config_type: ClassVar[type[ZeroDFLConfig]] = ZeroDFLConfig
    default_mode: ClassVar[Barrier] = "async"
    modes: ClassVar[tuple[Barrier, ...]] = ("async", "sync")
    tuning: ClassVar[Mapping[str, Json]] = {}
    shared_state: ClassVar[bool] = False
    repeatable: ClassVar[frozenset[str]] = frozenset()
    paper_bytes = staticmethod(paper_bytes)

    def __init__(self, config: ZeroDFLConfig, context: NodeContext, memory: Memory) -> None:
        self._config, self._context, self._memory = config, context, memory
        self._sync = (context.rounds.mode or self.default_mode) == "sync"
        self._waiting: Waiting = Idle()
        self._live: set[str] = set()
        self._known = {*context.peers}  # all other members, live or not
        self._current = 0  # the round in progress, or the last one
        self._tried: set[str] = set()  # recipients drawn in this round
        self._owed: dict[str, Message] = {}  # undelivered messages that a peer may wait for
        self._ahead: dict[str, Message] = {}  # rows of later rounds, one message per sender

    @classmethod
    def settings_fault(cls, config: ZeroDFLConfig, rounds: RoundSettings, domain: str) -> str:
        """Return "": every node can run this policy."""
        return ""

    @classmethod
    def start(cls, config: ZeroDFLConfig, context: NodeContext, initial: Tensors) -> Self:
        """Begin at round 0 with initial tensors."""
        return cls(config, context, Memory(tensors=initial, pool=Pool(config.pool_age)))

    @classmethod
    def restore(cls, config: ZeroDFLConfig, context: NodeContext, state: PolicyState) -> Self:
        """Continue from a stored state."""
        return cls(config, context, Memory.thaw(state, config.pool_age))

    def state(self) -> PolicyState:
        """Return the state that must survive a restart."""
        return self._memory.freeze()

    def shown(self) -> Mapping[str, Json]:
        """Return the choices of each peer, and the received rows that wait for a merge."""
        return self._memory.shown()

    @property
    def round(self) -> int:
        """Return the round that ended last."""
        return self._memory.round

    @property
    def phase(self) -> Activity:
        """Return the policy's activity, for status."""
        return self._waiting.phase

    def fault(self, message: Message) -> str:
        """Check phase and shape: rows [s, width] in "prompts", none in "done"."""
        return rows.fault(self._config, self._memory, message)

    def handle(self, now: float, event: ev.Event) -> Sequence[ev.Effect]:
        """Handle one event; return its effects, in order."""
        match event, self._waiting:
            case ev.RoundDue(), Idle():
                self._memory.stragglers.behind = event.behind
                if event.members is not None:
                    self._known = {*event.members} - {self._context.name}
                return self._begin(event.round)
            case ev.Tuned(job=job, report=report), Training(wanted) if job == wanted:
                return self._tell(report)
            case ev.Tuned(job=job, report=report), Judging(wanted, trial, metrics) if job == wanted:
                return self._try_next(trial.judged(report.metrics), metrics)
            case ev.TuneFailed(job=job), Training(wanted) | Judging(wanted) if job == wanted:
                self._waiting = Idle()
            case ev.Adopted(), Adopting():
                self._waiting = Idle()
            case ev.TimerFired(name=name), Exchanging(metrics) if name == DEADLINE:
                return [self._missed(now), *self._finish(metrics)]
            case ev.TimerFired(name=name), _ if name == RESEND:
                owed, self._owed = self._owed, {}
                return [ev.Send(peer, owed[peer]) for peer in sorted(owed)]
            case ev.PeerUp(peer=peer), _:
                self._live.add(peer)
                join(self._memory.chosen, peer)
                return self._catch_up(peer)
            case ev.PeerDown(peer=peer), _:
                self._live.discard(peer)
                self._owed.pop(peer, None)
                return self._advance()
            case ev.Received(message=message), _:
                self._hear(message)
                return self._advance()
            case ev.Undelivered(to=peer, message=message, code=code), _:
                return self._failed(peer, message, code)
        return []

    # A round, step by step ------------------------------------------------------------------------

    def _begin(self, number: int) -> list[ev.Effect]:
        memory = self._memory
        self._current, self._tried, memory.givers = number, set(), ()
        self._owed = {}  # this round's rows replace those of earlier rounds
        for sender in sorted(self._ahead):
            if self._ahead[sender].round <= number:
                memory.keep(self._ahead.pop(sender))
        return self._train() if self._sync else self._admit({})

    def _train(self) -> list[ev.Effect]:
        job = rows.training(self._context, self._current, self._memory)
        self._waiting = Training(job)
        return [ev.Tune(job)]

    def _tell(self, report: Report) -> list[ev.Effect]:
        """Send the tuned rows; end the round if nothing is missing."""
        self._waiting = Exchanging(report.metrics)
        memory, config = self._memory, self._config
        memory.tuned, memory.carry = report.tensors, report.carry
        if config.admit_rise is not None:
            memory.loss = report.metrics.get("validation_loss", memory.loss)
        if rows.shared(config, memory) == 0:
            return self._finish(report.metrics)
        drawn, said = self._draw(config.recipients, self._live, "recipients"), self._rows()
        effects: list[ev.Effect] = [ev.Send(peer, said) for peer in drawn]
        if self._sync:
            done = self._message("done")
            effects += [ev.Send(peer, done) for peer in sorted(self._live - self._tried)]
        timer = ev.SetTimer(DEADLINE, self._context.rounds.deadline_s)
        return [*effects, timer, *self._advance()]

    def _draw(self, how_many: int, peers: set[str], purpose: str) -> list[str]:
        """Draw recipients of this round's rows; count them, whatever becomes of the rows."""
        generator, chosen = self._context.random(self._current, purpose), self._memory.chosen
        drawn = draw_recipients(chosen, peers, how_many, EPSILON, generator)
        self._tried.update(drawn)
        chosen.update((peer, chosen.get(peer, 0) + 1) for peer in drawn)
        return drawn

    def _advance(self) -> list[ev.Effect]:
        """End the round if the node waits for its peers, and none is missing."""
        match self._waiting:
            case Exchanging(metrics) if not self._missing():
                return self._finish(metrics)
        return []

    def _missing(self) -> set[str]:
        """Return the peers that this round still waits for."""
        if not self._sync:
            return set()
        awaited = self._memory.stragglers.awaited(self._live, self._current)
        return {peer for peer in awaited if self._memory.heard.get(peer, 0) < self._current}

    def _missed(self, now: float) -> ev.Record:
        missing, limit = self._missing(), self._context.rounds.deadline_s
        said = self._memory.stragglers.missed(missing, self._current, now, limit)
        text = (
            f"round {self._current}: {said} sent nothing before the deadline; this node goes on "
            "without"
        )
        return ev.Record("round.deadline", text, "warning")

    def _finish(self, metrics: Metrics) -> list[ev.Effect]:
        """End a round whose exchange is over; in sync, merge first, but not in the last round."""
        if self._sync and self._current != self._context.rounds.max:
            return [ev.CancelTimer(DEADLINE), *self._admit(metrics)]
        self._memory.tensors = self._memory.tuned
        return self._close(metrics)

    @property
    def _base(self) -> Tensors:
        """The prompts into which received rows are merged."""
        return self._memory.tuned if self._sync else self._memory.tensors

    def _admit(self, metrics: Metrics) -> list[ev.Effect]:
        """Merge received rows: all of them, or one after the other through the gate."""
        memory, own, rise = self._memory, self._base[ROWS], self._config.admit_rise
        chosen = rows.drawn(self._config, memory, self._context.random(self._current, "merge"))
        if not chosen or rise is None:
            return self._merged(merge(own, chosen) if chosen else None, metrics)
        return self._try_next(Trial(own, memory.loss, chosen, rise), metrics)

    def _try_next(self, trial: Trial, metrics: Metrics) -> list[ev.Effect]:
        candidate = trial.candidate()
        if candidate is None:
            text = f"round {self._current}: {trial.refused} received rows would have made it worse"
            notes = [ev.Record("rows.refused", text)] if trial.refused else []
            return [*notes, *self._merged(trial.rows if trial.stayed else None, metrics)]
        job = rows.measuring(self._context, self._current, self._base, candidate)
        self._waiting = Judging(job, trial, metrics)
        return [ev.Tune(job)]

    def _merged(self, merged: Array | None, metrics: Metrics) -> list[ev.Effect]:
        """Go on with merged rows, or with the old rows: end the round, or begin its tuning."""
        rows.take(self._config, self._memory, self._base, merged)
        return self._close(metrics) if self._sync else self._train()

    def _close(self, metrics: Metrics) -> list[ev.Effect]:
        memory = self._memory
        memory.round = max(self._current, self._reached() - 1) if self._sync else self._current
        self._waiting = Adopting()
        adopt = ev.Adopt(Snapshot(memory.freeze(), metrics), memory.givers)
        return [ev.CancelTimer(DEADLINE), adopt]

    def _reached(self) -> int:
        """Return the round in which a node that fell behind goes on; peers see its round number."""
        memory, known, last = self._memory, self._known | self._live, self._context.rounds.max
        need = quorum(self._context, known, self._live)
        proven = reached(map(memory.round_of, known), need)
        return min(proven, last) if last else proven

    # Messages and changes of peers ----------------------------------------------------------------

    def _hear(self, message: Message) -> None:
        self._memory.hear(message, self._current)
        early = message.round > self._current and self._waiting != Idle()
        if message.phase == "prompts" and self._sync and early:
            self._ahead[message.sender] = message
        elif message.phase == "prompts":
            self._memory.keep(message)

    def _catch_up(self, peer: str) -> list[ev.Effect]:
        """Send the newest finished round to a peer that is back and may wait for it."""
        under_way = self._waiting.phase is Activity.TUNING
        told = self._current - under_way if self._current else self._memory.round
        if not self._sync or not told:
            return []
        return [ev.Send(peer, replace(self._message("done"), round=told))]

    def _failed(self, peer: str, message: Message, code: str) -> list[ev.Effect]:
        """Draw another peer in place of a peer that a message could not reach.

        In sync, send the message again: the rows, or "done" if another peer got them.
        """
        if message.round != self._current:
            return []
        effects = list[ev.Effect]()
        if message.phase == "prompts":
            again = self._draw(1, self._live - self._tried - {peer}, f"redraw {peer}")
            effects += [ev.Send(other, self._rows()) for other in again]
            message = self._message("done") if again else message
        if peer in self._live and self._sync and code in {"unreachable", "busy"}:
            self._owed[peer] = message
            effects.append(ev.SetTimer(RESEND, RESEND_S))
        return effects

    def _rows(self) -> Message:  # one object is encoded once
        shared = self._memory.tuned[ROWS][: rows.shared(self._config, self._memory)]
        return self._message("prompts", Tensors({ROWS: shared}))

    def _message(self, phase: str, tensors: Tensors = EMPTY) -> Message:
        number = self._current or self._memory.round
        return self._context.message(number, phase, tensors)
