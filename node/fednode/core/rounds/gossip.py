"""Rounds of gossip: each node tunes, sends arrays to some peers, and mixes what it received.

    async   mix -> tune -> send -> adopt            no node waits for another
    sync    tune -> send -> wait -> mix -> adopt    a round ends when all live peers finished it

A method (`GossipMethod`) decides by value: which peers get its arrays, what it sends, and how
received arrays change its own. `Gossip` runs the rounds of one node and does all the rest: it
counts, waits, sends again, catches up, tries changes on validation images, and stores its state.
With policy.admit_rise it applies the changes one after the other, measures each, and drops those
that raise the validation loss too much.

The last round is adopted as it was tuned, without a mix. In async a mix comes before the tuning:
after it, it would replace fresh arrays by those of the round before.

Phases of messages: "prompts" carries arrays. "done" carries none; in sync it tells a peer that was
not drawn that the sender has finished the round.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

from fednode.core import events as ev
from fednode.core.policy import (
    ADOPTING,
    DEADLINE,
    EXCHANGING,
    IDLE,
    RESEND,
    RESEND_S,
    Activity,
    Policy,
    PolicyMethod,
)
from fednode.core.rounds.quorum import quorum, reached
from fednode.core.rounds.stragglers import STRAGGLERS, Stragglers
from fednode.core.settings import STRICT, Barrier, bounded
from fednode.core.types import (
    EMPTY,
    MEASURE,
    Array,
    Json,
    Message,
    PolicyState,
    Report,
    Snapshot,
    Tensors,
)

PROMPTS, DONE = "prompts", "done"
INBOX: Final = "inbox/"


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipConfig:
    """The settings of every method of gossip that exchanges arrays."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    recipients: int = 5
    """Number of peers that get a round's arrays. More recipients spread prompts faster; each costs
    a message."""
    optimizer: Literal["keep", "reset"] = "keep"
    wire_dtype: Literal["float32", "float16"] = "float16"
    admit_rise: float | None = None
    """Largest accepted rise of the node's own validation loss by a received change; changes that
    raise it more are not used. Needs data.validation, and costs a measurement per change. null:
    every change is used."""

    @property
    def judged_by(self) -> str:
        """The setting that needs validation images; "" if none does."""
        return "" if self.admit_rise is None else "policy.admit_rise"

    def __post_init__(self) -> None:
        bounded("policy.recipients", self.recipients, 1)
        if self.admit_rise is not None:
            bounded("policy.admit_rise", self.admit_rise, 0)


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """The newest arrays of one sender, which the next mix uses."""

    sender: str
    round: int
    tensors: Tensors


@dataclass(frozen=True, slots=True)
class Change:
    """One change that a sender's arrays make to the node's own; tried by itself, see admit_rise."""

    sender: str
    apply: Callable[[Tensors], Tensors]


Accepted = tuple[Tensors, set[str], int]  # tensors, whose changes they hold, how many were refused


def trial(
    own: Tensors, loss: float | None, changes: Sequence[Change], rise: float
) -> Generator[Tensors, float, Accepted]:
    """Try changes one after the other on the node's validation images: yield what to measure.

    loss: that of the node's own tensors; None: it is measured first. rise: largest rise of the loss
    with which a change is accepted.
    """
    if loss is None:
        loss = yield own
    senders, refused = set[str](), 0
    for change in changes:
        candidate = change.apply(own)
        measured = yield candidate
        if measured <= loss + rise:  # false if the loss is NaN
            own, loss = candidate, measured
            senders.add(change.sender)
        else:
            refused += 1
    return own, senders, refused


class Gossip(Policy):
    def __init__(self, method: GossipMethod, state: PolicyState) -> None:
        super().__init__(method)
        self._method, self._config = method, method.config
        self._sync = (self.context.rounds.mode or method.modes[0]) == "sync"
        self._metrics: Mapping[str, float] = {}  # of the training of this round
        self._trial: Generator[Tensors, float, Accepted] | None = None
        self._live: set[str] = set()
        self._members = {*self.context.peers}  # all other members, live or not
        self._current = 0  # the round in progress, or the last one
        self._drawn: set[str] = set()  # recipients of this round
        self._unsent: dict[str, Message] = {}  # undelivered messages that a peer may wait for
        self._early: dict[str, Message] = {}  # arrays of later rounds, one message per sender
        self._taken: dict[str, tuple[int, str]] = {}  # by sender: its last arrays' round and digest
        self._senders: tuple[str, ...] = ()  # whose arrays the last mix used
        self._shapes = method.message(state.tensors).shapes  # of a message; {}: nothing is sent
        # What survives a restart:
        data = state.data
        self._round = state.round
        self._tensors, self._tuned, self._carry = state.tensors, state.tuned, state.carry
        self._chosen = _counts(data, "chosen")  # how often each peer was drawn
        self._claimed = _counts(data, "claimed")  # newest round that each peer says it finished
        self._proven = _counts(data, "proven")  # newest round of which each peer sent arrays
        self._stragglers = Stragglers.thaw(data.get(STRAGGLERS))
        self._loss = loss if isinstance(loss := data.get("loss"), float) else None
        self._inbox = _inbox(state)

    @property
    def round(self) -> int:
        return self._round

    def state(self) -> PolicyState:
        data: dict[str, Json] = {
            "chosen": dict(self._chosen),
            "claimed": dict(self._claimed),
            "proven": dict(self._proven),
            "inbox": {entry.sender: entry.round for entry in self._entries()},
            STRAGGLERS: self._stragglers.freeze(),
        }
        if self._loss is not None:
            data["loss"] = self._loss
        arrays = Tensors(
            {
                f"{INBOX}{entry.sender}/{name}": array
                for entry in self._entries()
                for name, array in entry.tensors.items()
            }
        )
        return PolicyState(self.round, self._tensors, self._tuned, self._carry, data, arrays)

    def fault(self, message: Message) -> str:
        if not self._shapes:
            return f"policy {self.name} exchanges nothing, and got phase {message.phase!r}"
        if message.phase == DONE:
            return "" if not message.tensors else "phase 'done' carries no tensors"
        if message.phase != PROMPTS:
            return f"{self.name} has no phase {message.phase!r}"
        if message.tensors.shapes == self._shapes and not message.tensors.classes:
            return ""
        expected = ", ".join(f"{name}{list(shape)}" for name, shape in self._shapes.items())
        return f"phase 'prompts' carries {expected} here, not {message.tensors!r}"

    def _react(self, event: ev.Event) -> list[ev.Effect]:
        match event:
            case ev.TimerFired(name=name) if name == RESEND:
                unsent, self._unsent = self._unsent, {}
                return [ev.Send(peer, unsent[peer]) for peer in sorted(unsent)]
            case ev.PeerUp(peer=peer) if self._shapes:
                self._live.add(peer)
                # A newcomer starts at the lowest count, or all would send to it until it caught up.
                self._chosen.setdefault(peer, min(self._chosen.values(), default=0))
                return self._catch_up(peer)
            case ev.PeerDown(peer=peer):
                self._live.discard(peer)
                self._unsent.pop(peer, None)
                return self._advance()
            case ev.Received(message=message) if self._shapes:
                self._receive(message)
                return self._advance()
            case ev.Undelivered(to=peer, message=message, code=code):
                return self._undelivered(peer, message, code)
        return []

    # A round, step by step ------------------------------------------------------------------------

    def _begin(self, event: ev.RoundDue) -> list[ev.Effect]:
        self._stragglers.behind = event.behind
        if event.members is not None:
            self._members = {*event.members} - {self.context.name}
        self._current, self._drawn, self._senders, self._unsent = event.round, set(), (), {}
        self._metrics, self._trial = {}, None
        for sender in sorted(self._early):
            if self._early[sender].round <= event.round:
                self._keep(self._early.pop(sender))
        return self._train() if self._sync else self._mix(self._tensors)

    def _train(self) -> list[ev.Effect]:
        return self._tune(self.context.job(self._current, PROMPTS, self._tensors, self._carry))

    def _trained(self, report: Report) -> list[ev.Effect]:
        """Send the tuned arrays; end the round if it waits for nobody."""
        if self._trial is not None:
            return self._try_next(self._trial, report.metrics.get("validation_loss", math.inf))
        self._metrics, self.step = report.metrics, EXCHANGING
        self._tuned, self._carry = report.tensors, report.carry
        if not self._shapes:
            return self._finish()
        if self._config.admit_rise is not None:
            self._loss = report.metrics.get("validation_loss", self._loss)
        drawn = self._draw(self._config.recipients, self._live, "recipients")
        message, done = self._prompts(), self._message(DONE)
        effects: list[ev.Effect] = [ev.Send(peer, message) for peer in drawn]
        if self._sync:
            effects += [ev.Send(peer, done) for peer in sorted(self._live - self._drawn)]
        timer = ev.SetTimer(DEADLINE, self.context.rounds.deadline_s)
        return [*effects, timer, *self._advance()]

    def _draw(self, count: int, peers: set[str], purpose: str) -> list[str]:
        """Draw recipients of this round; count them, whether the message arrives or not."""
        draw = self.context.random(self._current, purpose)
        drawn = self._method.recipients(count, peers, self._chosen, draw)
        self._drawn.update(drawn)
        self._chosen.update((peer, self._chosen.get(peer, 0) + 1) for peer in drawn)
        return drawn

    def _advance(self) -> list[ev.Effect]:
        """End the round if the node waits for its peers, and none is missing."""
        return self._finish() if self.step == EXCHANGING and not self._missing() else []

    def _missing(self) -> set[str]:
        if not self._sync:
            return set()
        awaited = self._stragglers.awaited(self._live, self._current)
        return {peer for peer in awaited if self._claimed.get(peer, 0) < self._current}

    def _give_up(self, now: float) -> list[ev.Effect]:
        missing, limit = self._missing(), self.context.rounds.deadline_s
        names = self._stragglers.missed(missing, self._current, now, limit)
        text = f"round {self._current}: {names} sent nothing before the deadline"
        late = ev.Record("round.deadline", f"{text}; this node goes on without", "warning")
        return [late, *self._finish()]

    def _finish(self) -> list[ev.Effect]:
        """End a round whose exchange is over; in sync, mix first, but not in the last round."""
        if self._sync and self._current != self.context.rounds.max:
            return [ev.CancelTimer(DEADLINE), *self._mix(self._tuned)]
        self._tensors = self._tuned
        return self._close()

    def _mix(self, own: Tensors) -> list[ev.Effect]:
        """Change the node's tensors by received messages: at once, or change by change on trial."""
        draw = self.context.random(self._current, "merge")
        changes = self._method.mix(own, self._entries(), draw) if self._inbox else []
        self._inbox = {}
        rise = self._config.admit_rise if changes else None
        if rise is None:
            mixed = own
            for change in changes:
                mixed = change.apply(mixed)
            return self._mixed(mixed, {change.sender for change in changes})
        return self._try_next(trial(own, self._loss, changes, rise), None)

    def _try_next(
        self, trial: Generator[Tensors, float, Accepted], loss: float | None
    ) -> list[ev.Effect]:
        """Measure the trial's next candidate; after the last change, go on with the tensors."""
        try:
            tensors = next(trial) if loss is None else trial.send(loss)
        except StopIteration as end:
            (mixed, senders, refused), self._trial = end.value, None
            what = "received changes that raise the validation loss are not used"
            text = f"round {self._current}: {what}: {refused}"
            return [
                *([ev.Record("rows.refused", text)] * bool(refused)),
                *self._mixed(mixed, senders),
            ]
        self._trial = trial
        return self._tune(self.context.job(self._current, MEASURE, tensors, EMPTY, measure=False))

    def _mixed(self, mixed: Tensors, senders: Collection[str]) -> list[ev.Effect]:
        """Go on after a mix: end the round in sync, begin its training in async."""
        self._tensors, self._senders = mixed, tuple(sorted(senders))
        if senders and self._config.optimizer == "reset":
            self._carry = EMPTY
        return self._close() if self._sync else self._train()

    def _close(self) -> list[ev.Effect]:
        self._round = max(self._current, self._reached() - 1) if self._sync else self._current
        self.step = ADOPTING
        adopt = ev.Adopt(Snapshot(self.state(), self._metrics), self._senders)
        return [ev.CancelTimer(DEADLINE), adopt]

    def _reached(self) -> int:
        """Return the round in which a node that fell behind goes on (quorum.py)."""
        members, last = self._members | self._live, self.context.rounds.max
        need = quorum(self.context, members, self._live)
        proven = reached(map(self._round_of, members), need)
        return min(proven, last) if last else proven

    def _round_of(self, peer: str) -> int:
        """Return how far a peer is: as it says, and at most one round beyond its newest arrays."""
        return min(self._claimed.get(peer, 0), self._proven.get(peer, 0) + 1)

    # Messages and changes of peers ----------------------------------------------------------------

    def _entries(self) -> list[InboxMessage]:
        return [self._inbox[sender] for sender in sorted(self._inbox)]

    def _receive(self, message: Message) -> None:
        sender, number = message.sender, message.round
        self._claimed[sender] = max(self._claimed.get(sender, 0), number)
        if message.tensors:
            self._proven[sender] = max(self._proven.get(sender, 0), number)
        if number == self._current:
            self._stragglers.kept(sender)
        said = number, message.tensors.digest
        if message.phase == PROMPTS and self._taken.get(sender) != said:
            self._taken[sender] = said
            if self._sync and number > self._current and self.step != IDLE:
                self._early[sender] = message
            else:
                self._keep(message)

    def _keep(self, message: Message) -> None:
        """Put a message into the inbox, unless its sender's newest message is there."""
        old = self._inbox.get(message.sender)
        if old is None or old.round < message.round:
            received = InboxMessage(message.sender, message.round, message.tensors)
            self._inbox[message.sender] = received

    def _catch_up(self, peer: str) -> list[ev.Effect]:
        """Send the newest finished round to a peer that is back and may wait for it."""
        training = self.activity is Activity.TUNING
        finished = self._current - training if self._current else self.round
        if not self._sync or not finished:
            return []
        return [ev.Send(peer, replace(self._message(DONE), round=finished))]

    def _undelivered(self, peer: str, message: Message, code: str) -> list[ev.Effect]:
        """Draw another peer in place of a peer that a message could not reach.

        In sync, send the message again: the arrays, or "done" if another peer got them.
        """
        if message.round != self._current:
            return []
        effects = list[ev.Effect]()
        if message.phase == PROMPTS:
            others = self._draw(1, self._live - self._drawn - {peer}, f"redraw {peer}")
            effects += [ev.Send(other, self._prompts()) for other in others]
            message = self._message(DONE) if others else message
        if peer in self._live and self._sync and code in {"unreachable", "busy"}:
            self._unsent[peer] = message
            effects.append(ev.SetTimer(RESEND, RESEND_S))
        return effects

    def _prompts(self) -> Message:
        return self._message(PROMPTS, self._method.message(self._tuned))

    def _message(self, phase: str, tensors: Tensors = EMPTY) -> Message:
        number = self._current or self.round
        return self.context.message(number, phase, tensors)


class GossipMethod(PolicyMethod):
    """A method of gossip: pure hooks, which depend on settings and arguments alone.

    The class is what the registry offers. With these defaults a node exchanges nothing.
    """

    modes: ClassVar[tuple[Barrier, ...]] = ("async", "sync")
    policy = Gossip

    def message(self, tensors: Tensors) -> Tensors:
        """Return the arrays that a node with these tensors sends; EMPTY: it exchanges nothing."""
        return EMPTY

    def recipients(
        self, count: int, peers: Collection[str], chosen: Mapping[str, int], draw: random.Random
    ) -> list[str]:
        """Return at most `count` of the peers. chosen: how often each was drawn before."""
        return []

    def mix(self, own: Tensors, inbox: Sequence[InboxMessage], draw: random.Random) -> list[Change]:
        """Return the changes that received messages make to the node's own tensors, in order."""
        return []


def _counts(data: Mapping[str, Json], name: str) -> dict[str, int]:
    counts = data.get(name)
    counts = counts if isinstance(counts, dict) else {}
    return {peer: int(str(counts[peer])) for peer in sorted(counts)}


def _inbox(state: PolicyState) -> dict[str, InboxMessage]:
    arrays: dict[str, dict[str, Array]] = {}
    for key, array in state.arrays.items():
        sender, _, name = key.removeprefix(INBOX).partition("/")
        arrays.setdefault(sender, {})[name] = array
    rounds = _counts(state.data, "inbox").items()
    return {
        sender: InboxMessage(sender, number, Tensors(arrays[sender]))
        for sender, number in rounds
        if sender in arrays
    }
