"""Rounds of a method whose nodes keep the newest statement of each member, and agree on nothing.

    compute the statement -> send it, if it changed -> wait -> combine -> adopt

A statement is what a node tells all others of itself: arrays with a row for each of its classes. A
round asks the learner for the statement, and then for what the node uses, which is combined from
all statements that the node holds. A round waits only for live peers that have said nothing yet, at
most until the deadline, and once for each peer. A statement that arrives later counts from the
node's next round on.

Each message tells which statement of the receiver the sender holds. If that is not the newest, the
receiver sends its own. So a node that is new, comes back or lost its state gets what it lacks when
its peers are up. Statements of members that left or were removed are dropped. A node takes no
member's word for another member's statement.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import numpy as np

from fednode.core import events as ev
from fednode.core.policy import (
    ADOPTING,
    DEADLINE,
    EXCHANGING,
    RESEND,
    RESEND_S,
    Policy,
    PolicyMethod,
)
from fednode.core.types import EMPTY, Array, Json, Message, PolicyState, Report, Snapshot, Tensors

STATEMENT: Final = "statement"
"""Phase of a message with a statement, and stage of the job that computes it."""
COMBINE: Final = "combine"  # stage of the job that combines the statements
HOLDS: Final = "holds"
"""Fact of a message: the digest of the receiver's statement that the sender holds."""
BYTES_MAX: Final = 60 << 20
"""A node that holds statements of more bytes keeps what counts of them alone."""

Statements = Mapping[str, Tensors]  # statements by sender


class StatementRounds(Policy):
    def __init__(self, method: StatementMethod, state: PolicyState) -> None:
        super().__init__(method)
        self._method = method
        self._current, self._state = state.round, state  # the round under way; as adopted last
        self._live, self._answered, self._unsent = set[str](), set[str](), set[str]()
        self._newest: dict[str, int] = {}  # the round of each peer's statement
        self._statements = unpack(state.arrays)
        self._carry, self._note = state.carry, str(state.data.get("note", ""))
        silent = state.data.get("silent")  # peers for which a round waited in vain
        self._silent = {*map(str, silent)} if isinstance(silent, list) else set[str]()

    def state(self) -> PolicyState:
        return self._state

    @property
    def round(self) -> int:
        return self._state.round

    @property
    def state_bytes(self) -> int:
        return self._method.statement_bytes(self._initial)

    @property
    def _initial(self) -> Tensors:
        arrays = self._state.tensors.items()
        return Tensors({name: array for name, array in arrays if "/" not in name})

    def fault(self, message: Message) -> str:
        if message.phase != STATEMENT:
            return f"policy {self.name} has no phase {message.phase!r}"
        return self._method.fault(message.tensors, self._initial)

    def _react(self, event: ev.Event) -> list[ev.Effect]:
        match event:
            case ev.TimerFired(name=name) if name == RESEND:
                unsent, self._unsent = self._unsent & self._live, set()
                return [self._send(peer) for peer in sorted(unsent)]
            case ev.PeerUp(peer=peer):
                self._live.add(peer)
                self._newest.pop(peer, None)  # it may have lost its state, and begin anew
                return [self._send(peer)] if self.context.name in self._statements else []
            case ev.PeerDown(peer=peer):
                self._live.discard(peer)
                return self._advance()
            case ev.Received(message=message):
                return [*self._take(message), *self._advance()]
            case ev.Undelivered(to=peer, code="unreachable" | "busy"):
                self._unsent.add(peer)
                return [ev.SetTimer(RESEND, RESEND_S)]
        return []

    def _begin(self, event: ev.RoundDue) -> list[ev.Effect]:
        self._current, self._answered = event.round, set()
        if event.members is not None:
            gone = self._statements.keys() - event.members - {self.context.name}
            self._statements = _without(self._statements, gone)
        return self._work(STATEMENT, self._initial)

    def _work(self, stage: str, tensors: Tensors) -> list[ev.Effect]:
        measure = stage == COMBINE
        job = self.context.job(self._current, stage, tensors, self._carry, measure=measure)
        return self._tune(job)

    def _trained(self, report: Report) -> list[ev.Effect]:
        """After COMBINE adopt. Else send the statement if it changed; wait for silent peers."""
        if self.step.job and self.step.job.stage == COMBINE:
            return self._adopt(report)
        before = self._statements.get(self.context.name)
        self._statements = {**self._statements, self.context.name: report.tensors}
        self._carry, self.step = report.carry, EXCHANGING
        news = sorted(self._live) if report.tensors != before else []
        deadline = ev.SetTimer(DEADLINE, self.context.rounds.deadline_s)
        return [*(self._send(peer) for peer in news), deadline, *self._advance()]

    def _give_up(self, now: float) -> list[ev.Effect]:
        missing, self._silent = self._missing, self._silent | {*self._missing}
        text = f"round {self._current}: {', '.join(missing)} sent nothing before the deadline"
        late = ev.Record("round.deadline", f"{text}; this node goes on without", "warning")
        return [late, *self._advance()]

    @property
    def _missing(self) -> list[str]:
        return sorted(self._live - self._statements.keys() - self._silent)

    def _advance(self) -> list[ev.Effect]:
        """Combine the statements if the node waits, and no peer is missing."""
        if self.step != EXCHANGING or self._missing:
            return []
        counted = self._method.counted(self._statements)
        before, self._note = self._note, self._method.note(self._statements, counted)
        noted = [ev.Record("statements.left", self._note or "all that the peers sent counts again")]
        peers = pack(_without(counted, {self.context.name}))
        used = Tensors({**self._initial, **peers}, peers.classes)
        news = noted if self._note != before else []
        return [ev.CancelTimer(DEADLINE), *news, *self._work(COMBINE, used)]

    def _adopt(self, report: Report) -> list[ev.Effect]:
        """Adopt what was combined. The peers whose statements are of any class gave to it."""
        data: dict[str, Json] = {"silent": [*sorted(self._silent)], "note": self._note}
        used, self._carry, self.step = report.tensors, report.carry, ADOPTING
        self._state = PolicyState(
            self._current, used, used, report.carry, data, pack(self._statements)
        )
        given = (name for name, one in sorted(self._statements.items()) if one.classes)
        givers = tuple(name for name in given if name != self.context.name)
        return [ev.Adopt(Snapshot(self._state, report.metrics), givers)]

    def _take(self, message: Message) -> list[ev.Effect]:
        """Keep a peer's statement; send the node's own, if the peer does not hold it."""
        sender, own = message.sender, self._statements.get(self.context.name)
        if message.round >= self._newest.get(sender, 0):
            self._newest[sender] = message.round
            self._silent.discard(sender)
            self._statements = {**self._statements, sender: message.tensors}
            if sum(one.nbytes for one in self._statements.values()) > BYTES_MAX:
                self._statements = dict(self._method.counted(self._statements))
        if own is None or message.facts.get(HOLDS) == own.digest or sender in self._answered:
            return []
        self._answered.add(sender)  # once a round, whatever a peer says
        return [self._send(sender)]

    def _send(self, peer: str) -> ev.Send:
        held = self._statements.get(peer, EMPTY).digest
        own = self._statements[self.context.name]
        return ev.Send(peer, self.context.message(self._current, STATEMENT, own, {HOLDS: held}))


class StatementMethod(PolicyMethod):
    """A method of statements: pure hooks, which depend on settings and arguments alone.

    The class is what the registry offers.
    """

    policy = StatementRounds

    def statement_bytes(self, initial: Tensors) -> int:
        """Return how large a node's statement may be."""
        return 0

    def fault(self, statement: Tensors, initial: Tensors) -> str:
        """Return what is wrong with a peer's statement; "" if nothing is."""
        return ""

    def counted(self, statements: Statements) -> Statements:
        """Return what counts of the statements of all, where all would cost this node too much."""
        return statements

    def note(self, statements: Statements, counted: Statements) -> str:
        """Return whose statements do not count in full; "" if all do."""
        return ""


def _without(statements: Statements, names: Collection[str]) -> dict[str, Tensors]:
    return {name: one for name, one in statements.items() if name not in names}


def pack(statements: Statements) -> Tensors:
    """Return statements as arrays "<array>/<sender>", whose rows begin with their class's place."""
    classes = sorted({name for one in statements.values() for name in one.classes})
    places = {name: at for at, name in enumerate(classes)}
    arrays: dict[str, Array] = {}
    for sender, one in statements.items():
        column = np.array([places[name] for name in one.classes], np.float32)
        for name, array in one.items():
            arrays[f"{name}/{sender}"] = np.column_stack([column, array])
    return Tensors(arrays, classes)


def unpack(packed: Tensors) -> dict[str, Tensors]:
    """Return the statements that `pack` packed; arrays without a "/" are none."""
    found: dict[str, dict[str, Array]] = {}
    classes: dict[str, list[str]] = {}
    for name, array in packed.items():
        kind, slash, sender = name.partition("/")
        if slash:
            found.setdefault(sender, {})[kind] = array[:, 1:]
            classes[sender] = [packed.classes[int(place)] for place in array[:, 0]]
    return {sender: Tensors(arrays, classes[sender]) for sender, arrays in found.items()}
