"""ZeroDFL (IJCNN 2025): every node tunes, sends its rows to a few peers, and mixes received rows.

A round in sync is: tune; send; wait; merge; adopt. A round in async is: merge received
rows; tune; send; adopt (rows.mixes_first). Recipients are drawn by equations 1 and 2. The last
round's tuned prompts are adopted unmerged, as the published tables test them.

Phases on the wire: "prompts" (rows), and in sync "done": the sender has finished its
round, and did not draw the receiver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Self

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
    Send,
    SetTimer,
    TimerFired,
    Tune,
    Tuned,
    TuneFailed,
    Undelivered,
)
from fednode.core.policy import DEADLINE, RESEND, RESEND_S, NodeContext
from fednode.core.settings import Barrier, RoundSettings
from fednode.core.types import (
    EMPTY,
    Array,
    Job,
    Json,
    Message,
    PolicyState,
    Report,
    Snapshot,
    Tensors,
)
from fednode.policies.zerodfl import rows
from fednode.policies.zerodfl.accounting import paper_bytes
from fednode.policies.zerodfl.config import ZeroDFLConfig
from fednode.policies.zerodfl.pool import Entry, Pool, merge
from fednode.policies.zerodfl.recipients import draw_recipients, join
from fednode.policies.zerodfl.state import ROWS, Memory
from fednode.policies.zerodfl.trial import Trial


class ZeroDFL:
    """ZeroDFL's state machine; see the file's header."""

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
        self._mode: Barrier = context.rounds.mode or self.default_mode
        self._mixes_first = rows.mixes_first(self._mode)
        self._phase = "idle"
        self._live: set[str] = set()
        self._order: tuple[str, ...] = ()  # the live peers, sorted; empty after a change
        self._job: Job | None = None
        self._trial: Trial | None = None  # received rows on trial
        self._report: Report | None = None
        self._current = 0  # the round in progress
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
    def phase(self) -> str:
        """Return "idle", "tuning", "exchanging" or "adopting"."""
        return self._phase

    def fault(self, message: Message) -> str:
        """Check phase and shape: rows [s, width] in "prompts", none in "done"."""
        return rows.fault(self._config, self._memory, message)

    def handle(self, now: float, event: Event) -> Sequence[Effect]:
        """Handle one event; return its effects, in order."""
        match event:
            case RoundDue(round=number, start=start) if self._phase == "idle":
                self._memory.stragglers.behind = event.behind
                return self._begin(number, start)
            case Tuned(job=job, report=report) if job == self._job:
                if self._trial is None:
                    return self._tell(job, report)
                self._trial.judge(report.metrics)
                return self._try_next()
            case TuneFailed(job=job) if job == self._job:
                self._job, self._trial, self._phase = None, None, "idle"
            case Adopted() if self._phase == "adopting":
                self._phase = "idle"
            case PeerUp(peer=peer):
                self._live.add(peer)
                self._order = ()
                join(self._memory.chosen, peer)
                return self._catch_up(peer)
            case PeerDown(peer=peer):
                self._live.discard(peer)
                self._order = ()
                self._owed.pop(peer, None)
                return self._advance() if self._phase == "exchanging" else []
            case Received(message=message):
                return self._hear(message)
            case Delivered(to=peer, message=message) if message.phase == "prompts":
                self._memory.chosen[peer] = self._memory.chosen.get(peer, 0) + 1
            case Undelivered(to=peer, message=message, code=code):
                return self._failed(peer, message, code)
            case TimerFired(name=name) if name == DEADLINE and self._phase == "exchanging":
                names, limit = self._missing(), self._context.rounds.deadline_s
                missing = self._memory.stragglers.missed(names, self._current, now, limit)
                text = f"round {self._current}: the deadline passed without {missing}"
                return [Record("round.deadline", text, "warning"), *self._finish()]
            case TimerFired(name=name) if name == RESEND:
                owed, self._owed = self._owed, {}
                return [Send(one, owed[one]) for one in sorted(owed)]
        return []

    # A round, step by step ------------------------------------------------------------------------

    def _begin(self, number: int, start: Tensors | None) -> list[Effect]:
        self._current = number
        self._phase = "tuning"
        self._tried = set()
        self._owed = {}  # this round's rows replace those of earlier rounds
        for sender in sorted(self._ahead):
            if self._ahead[sender].round <= number:
                self._keep(self._ahead.pop(sender))
        memory = self._memory
        if start is not None:
            memory.tensors, memory.givers, memory.loss = start, (), None
        elif self._mixes_first:
            return self._admit(memory.tensors)
        return self._train()

    def _train(self) -> list[Effect]:
        self._job = rows.training(self._context, self._current, self._memory)
        return [Tune(self._job)]

    def _tell(self, job: Job, report: Report) -> list[Effect]:
        self._job, self._report, self._phase = None, report, "exchanging"
        memory = self._memory
        memory.tuned, memory.carry = report.tensors, report.carry
        if self._config.admit_rise is not None:
            memory.loss = report.metrics.get("validation_loss", memory.loss)
        if rows.shared(self._config, self._memory) == 0:
            return self._finish()
        timer = SetTimer(DEADLINE, self._context.rounds.deadline_s)
        return [*self._push(), timer, *self._advance()]

    def _push(self) -> list[Effect]:
        config, generator = self._config, self._context.random(self._current, "recipients")
        self._order = self._order or tuple(sorted(self._live))
        chosen = draw_recipients(
            self._memory.chosen, self._order, config.recipients, config.epsilon, generator
        )
        self._tried = set(chosen)
        said = self._rows()
        effects: list[Effect] = [Send(peer, said) for peer in chosen]
        if self._mode != "async":
            done = self._message("done")
            effects += [Send(peer, done) for peer in sorted(self._live - self._tried)]
        return effects

    def _advance(self) -> list[Effect]:
        """End the round if nothing is missing."""
        return [] if self._missing() else self._finish()

    def _missing(self) -> set[str]:
        """Return the peers that this round still waits for."""
        if self._mode == "async":
            return set()
        heard, stragglers = self._memory.heard, self._memory.stragglers
        awaited = stragglers.awaited(self._live, self._current)
        return {one for one in awaited if heard.get(one, 0) < self._current}

    def _finish(self) -> list[Effect]:
        memory = self._memory
        if not self._mixes_first:
            memory.givers = ()
            if self._current != self._context.rounds.max:
                return [CancelTimer(DEADLINE), *self._admit(memory.tuned)]
        return self._close(None)

    def _admit(self, base: Tensors) -> list[Effect]:
        """Merge received rows into `base`: all of them, or one after the other through the gate."""
        config, memory, rise = self._config, self._memory, self._config.admit_rise
        generator = self._context.random(self._current, "merge")
        chosen = rows.drawn(config, memory, generator)
        if not chosen or rise is None:
            return self._merged(merge(base[ROWS], chosen) if chosen else None)
        self._trial = Trial(base[ROWS], memory.loss, chosen, rise)
        return self._try_next()

    def _try_next(self) -> list[Effect]:
        trial, memory = self._trial, self._memory
        assert trial is not None, "rows are on trial"
        candidate = trial.candidate()
        if candidate is None:
            self._trial = None
            text = f"round {self._current}: {trial.refused} received rows would have made it worse"
            notes: list[Effect] = [Record("rows.refused", text)] if trial.refused else []
            return [*notes, *self._merged(trial.rows if trial.stayed else None)]
        base = memory.tensors if self._mixes_first else memory.tuned
        self._job = rows.measuring(self._context, self._current, base, candidate)
        self._phase = "tuning"
        return [Tune(self._job)]

    def _merged(self, merged: Array | None) -> list[Effect]:
        """Go on with merged rows, or with the old rows: end the round, or begin its tuning."""
        if not self._mixes_first:
            return self._close(merged)
        if merged is not None:
            rows.take(self._config, self._memory, self._memory.tensors, merged)
        return self._train()

    def _close(self, merged: Array | None) -> list[Effect]:
        memory, report = self._memory, self._report
        assert report is not None, "a round ends only after its tuning"
        memory.tensors = memory.tuned
        if merged is not None:
            rows.take(self._config, memory, memory.tuned, merged)
        # A node that fell behind continues at the others' round: peers see its round number.
        others = {*self._context.peers, *self._live} if self._mode != "async" else set[str]()
        memory.round = max(self._current, memory.reached(others) - 1)
        self._job, self._phase, self._report = None, "adopting", None
        snapshot = Snapshot(memory.freeze(), report.metrics)
        return [CancelTimer(DEADLINE), Adopt(snapshot, memory.givers)]

    # Messages and changes of peers ----------------------------------------------------------------

    def _hear(self, message: Message) -> list[Effect]:
        memory, sender = self._memory, message.sender
        memory.heard[sender] = max(memory.heard.get(sender, 0), message.round)
        if message.round == self._current:
            memory.stragglers.kept(sender)
        if message.phase == "prompts":
            if self._mode != "async" and self._phase != "idle" and message.round > self._current:
                self._ahead[sender] = message
            else:
                self._keep(message)
        return self._advance() if self._phase == "exchanging" else []

    def _keep(self, message: Message) -> None:
        self._memory.pool.add(Entry(message.sender, message.round, message.tensors[ROWS]))

    def _catch_up(self, peer: str) -> list[Effect]:
        """Send the newest finished round to a peer that is back and may wait for it."""
        tuning = self._phase == "tuning"
        told = self._current - tuning if self._current else self._memory.round
        if self._mode == "async" or not told:
            return []
        return [Send(peer, replace(self._message("done"), round=told))]

    def _failed(self, peer: str, message: Message, code: str) -> list[Effect]:
        """Draw another peer in place of a peer that a message could not reach.

        In sync, send the message again: the rows, or "done" if another peer got them.
        """
        if message.round != self._current:
            return []
        effects = list[Effect]()
        if message.phase == "prompts":
            left = sorted(self._live - self._tried - {peer})
            generator = self._context.random(self._current, f"redraw {peer}")
            again = draw_recipients(self._memory.chosen, left, 1, self._config.epsilon, generator)
            self._tried |= set(again)
            effects += [Send(other, self._rows()) for other in again]
            message = self._message("done") if again else message
        if peer in self._live and self._mode != "async" and code in {"unreachable", "busy"}:
            self._owed[peer] = message
            effects.append(SetTimer(RESEND, RESEND_S))
        return effects

    def _rows(self) -> Message:  # one object is encoded once
        shared = self._memory.tuned[ROWS][: rows.shared(self._config, self._memory)]
        return self._message("prompts", Tensors({ROWS: shared}))

    def _message(self, phase: str, tensors: Tensors = EMPTY) -> Message:
        return self._context.message(self._current or self._memory.round, phase, tensors)
