"""ZeroDFL (IJCNN 2025): every node tunes, sends its rows to a few peers, and mixes received rows.

A round is: tune; send; wait (only in sync mode, and for the answers in pull);
merge; adopt. In push and async it is: merge received rows; tune; send; adopt (rows.mixes_first).
Push, the paper's rule, draws recipients by equations 1 and 2. Pull, the released code's rule, draws
sources. The last round's tuned prompts are adopted unmerged, as the published tables test them.

Phases on the wire: "prompts" (rows, pushed), "want" (a request for rows), "answer" (the requested
rows), and in sync "done". In push, "done" says that the sender has finished its round
and did not choose the receiver. In pull, it says that the sender has all rows that it requested.
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
from fednode.policies.zerodfl.recipients import draw_recipients, draw_sources, join
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
    repeatable: ClassVar[frozenset[str]] = frozenset({"want", "answer"})
    paper_bytes = staticmethod(paper_bytes)

    def __init__(self, config: ZeroDFLConfig, context: NodeContext, memory: Memory) -> None:
        self._config, self._context, self._memory = config, context, memory
        self._mode: Barrier = context.rounds.mode or self.default_mode
        self._mixes_first = rows.mixes_first(config, self._mode)
        self._phase = "idle"
        self._live: set[str] = set()
        self._order: tuple[str, ...] = ()  # the live peers, sorted; empty after a change
        self._job: Job | None = None
        self._trial: Trial | None = None  # received rows on trial
        self._report: Report | None = None
        self._current, self._through = 0, False  # the round in progress; pull: its "done" was sent
        self._tried: set[str] = set()  # recipients or sources drawn in this round
        self._owed: dict[str, Message] = {}  # undelivered messages that a peer may wait for
        self._ahead: dict[str, Message] = {}  # rows of later rounds, one message per sender
        self._sources: list[str] = []  # pull: the source of each position's row
        self._answers: dict[str, Array] = {}
        self._asked: dict[str, int] = {}  # pull: the round of each peer's open request

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
        """Check phase and shape: rows [s, width] in "prompts" and "answer", none in the others."""
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
                join(self._memory.received, peer)
                return [*self._catch_up(peer), *self._answer_waiting()]
            case PeerDown(peer=peer):
                self._live.discard(peer)
                self._order = ()
                self._owed.pop(peer, None)
                return self._lost(peer)
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
                return [*(Send(one, owed[one]) for one in sorted(owed)), *self._answer_waiting()]
        return []

    # A round, step by step ------------------------------------------------------------------------

    def _begin(self, number: int, start: Tensors | None) -> list[Effect]:
        self._current, self._phase = number, "tuning"
        self._tried, self._sources, self._answers, self._through = set(), [], {}, False
        if self._config.strategy == "push":  # this round's rows replace those of earlier rounds
            self._owed = {}
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
        rows.adapt(self._config, memory, report.metrics)
        effects: list[Effect] = list(self._answer_waiting())
        if rows.shared(self._config, self._memory) == 0:
            return [*effects, *self._finish()]
        effects += self._push() if self._config.strategy == "push" else self._pull()
        timer = SetTimer(DEADLINE, self._context.rounds.deadline_s)
        return [*effects, timer, *self._advance()]

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

    def _pull(self) -> list[Effect]:
        if self._current == self._context.rounds.max:
            return []
        generator = self._context.random(self._current, "sources")
        config, memory = self._config, self._memory
        wanted = rows.shared(config, memory)
        chosen = draw_sources(memory.received, self._live, wanted, config.epsilon, generator)
        self._sources, self._tried = chosen, set(chosen)
        return [Send(peer, self._message("want")) for peer in sorted(self._tried)]

    def _advance(self) -> list[Effect]:
        """End the round if nothing is missing; in pull, first send "done" if all answers came.

        No node starts the next round before all sent "done", so answers have rows of the right
        round.
        """
        effects: list[Effect] = []
        waiting = self._config.strategy == "pull" and self._mode != "async"
        if waiting and not self._through and not self._unanswered():
            self._through = True
            effects = [Send(peer, self._message("done")) for peer in sorted(self._live)]
        return effects if self._missing() else [*effects, *self._finish()]

    def _missing(self) -> set[str]:
        """Return the peers that this round still waits for."""
        if self._mode == "async":
            return self._unanswered()
        heard, stragglers = self._memory.heard, self._memory.stragglers
        awaited = stragglers.awaited(self._live, self._current)
        return self._unanswered() | {one for one in awaited if heard.get(one, 0) < self._current}

    def _unanswered(self) -> set[str]:
        return set(self._sources).difference(self._answers)

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
        chosen = rows.drawn(config, memory, generator, self._sources, self._answers)
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
        memory, sender, effects = self._memory, message.sender, list[Effect]()
        # A peer that requests or answers in a round has finished the round before, at least.
        through = message.round - (message.phase in {"want", "answer"})
        memory.heard[sender] = max(memory.heard.get(sender, 0), through)
        if through == self._current:
            memory.stragglers.kept(sender)
        if message.phase == "want":
            self._asked[sender] = message.round
            effects = self._answer_waiting()
        elif message.phase == "answer":
            if sender in self._sources:
                self._answers[sender] = message.tensors[ROWS]
        elif message.phase == "prompts":
            if self._mode != "async" and self._phase != "idle" and message.round > self._current:
                self._ahead[sender] = message
            else:
                self._keep(message)
        return [*effects, *(self._advance() if self._phase == "exchanging" else [])]

    def _keep(self, message: Message) -> None:
        self._memory.pool.add(Entry(message.sender, message.round, message.tensors[ROWS]))

    def _catch_up(self, peer: str) -> list[Effect]:
        """Send the newest finished round to a peer that is back and may wait for it."""
        through = self._through if self._config.strategy == "pull" else self._phase != "tuning"
        told = self._current - (not through) if self._current else self._memory.round
        if self._mode == "async" or not told:
            return []
        return [Send(peer, replace(self._message("done"), round=told))]

    def _answer_waiting(self) -> list[Effect]:
        """Answer requests: in async with the latest rows, otherwise once the round's rows exist."""
        if not self._memory.tuned or self._phase == "tuning":
            return []
        tuned = self._current if self._current else self._memory.round
        ready = [
            peer
            for peer in sorted(self._live & set(self._asked))
            if self._mode == "async" or self._asked[peer] <= tuned
        ]
        for peer in ready:
            del self._asked[peer]
        return [Send(peer, self._rows("answer")) for peer in ready]

    def _failed(self, peer: str, message: Message, code: str) -> list[Effect]:
        """Draw another peer in place of a peer that a message could not reach.

        In sync, send the message again: the rows, or "done" if another peer got them.
        """
        effects = list[Effect]()
        if message.phase == "answer":
            # The peer still waits, whatever this node's round is by now.
            self._asked.setdefault(peer, 0)
            return [SetTimer(RESEND, RESEND_S)] if peer in self._live else []
        if message.phase == "want":
            return self._lost(peer) if message.round == self._current else []
        if message.round != self._current and self._config.strategy == "push":
            return []
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

    def _lost(self, peer: str) -> list[Effect]:
        """Continue without a peer; in pull, draw another source."""
        if self._phase != "exchanging":
            return []
        effects: list[Effect] = []
        if peer in self._sources and peer not in self._answers:
            left = sorted(self._live - self._tried - {peer})
            generator = self._context.random(self._current, f"redraw {peer}")
            again = draw_sources(self._memory.received, left, 1, self._config.epsilon, generator)
            other = again[0] if again else ""
            kept = [other if name == peer else name for name in self._sources]
            self._sources = [name for name in kept if name]
            self._tried |= set(again)
            effects += [Send(name, self._message("want")) for name in again]
        return [*effects, *self._advance()]

    def _rows(self, phase: str = "prompts") -> Message:  # one object is encoded once
        shared = self._memory.tuned[ROWS][: rows.shared(self._config, self._memory)]
        return self._message(phase, Tensors({ROWS: shared}))

    def _message(self, phase: str, tensors: Tensors = EMPTY) -> Message:
        return self._context.message(self._current or self._memory.round, phase, tensors)
