"""A life is one life: a node learns whether its key has spoken elsewhere, and what was released.

A state directory that was restored from a backup, or copied, lets one key live twice. The later
life does not know what the other one released, so its privacy account would count too little.

Each node puts a mark on its messages: the word of its process, its last durable round, and how many
results of training it had released by then. It signs the mark. Peers keep the newest mark of each
node, also on their disks. If a node's mark says less than the mark that a peer keeps, the peer's
answer holds the kept mark.

A node believes a mark that its own key signed, whoever shows it. It believes an unsigned mark only
if more than half of all members, the node counted, say that they know as much: no member alone
silences anybody. Then the node names it, counts the missing releases as spent, and, if privacy is
on, sends no prompts and begins no round until its operator decides (`fednode accept`). If the mark
of another process grows further, that process lives now.

A peer names a node of which two processes speak in turns.

Marks belong to a key. A node that joins again under its name with a new key begins a new life.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from fednode.core.events import Adopt, Delivered, Effect, Level, Record, Send, Spend, Tune
from fednode.core.members.phases import PHASES
from fednode.core.members.table import MEMBERS_MAX, Members
from fednode.core.policy import NodeContext
from fednode.core.types import MEASURE, Json, Mark, Message, Past, Snapshot

FORMER_MAX: Final = 8
"""Number of earlier processes of a peer that a node remembers."""
KEYS_MAX: Final = 2 * MEMBERS_MAX
"""Number of keys whose marks a node remembers."""
OLDER: Final = "life.older"
TWICE: Final = "life.twice"
UNDER_WAY: Final = 2
"""Most results that leave a node in one round (two stages): no mark counts those of the last."""
Kept = TypeVar("Kept")
Prove = Callable[[Mark], bytes]
"""Return a node's signature under a mark of its own; b"" in a mesh without keys."""


@dataclass(slots=True)
class _Processes:
    """The processes of one key. name: of its peer. former: those before the present one.

    present: which speaks now. since, until: when it was heard first and last. late: processes that
    were taken for the present one by messages that were long on their way.
    """

    name: str
    present: str
    since: float
    until: float
    former: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    twice_at: float = -1.0

    def follows(self, process: str, now: float) -> None:
        """Note that another process is the present one from now on."""
        others = tuple(one for one in self.former if one != process)
        self.former = (*others, self.present)[-FORMER_MAX:]
        self.present, self.since, self.until = process, now, now


@dataclass(slots=True)
class Lives:
    """What one node knows of its own life and of its peers' lives; see the file's header.

    released: results of training that it released so far. marks: the
    newest of each key (by name, while the key is not known). undecided: why it is silent until its
    operator decides; "" if it is not. prove: signs a mark.
    """

    context: NodeContext
    members: Members
    prove: Prove
    released: int
    marks: dict[str, Mark]
    own: Mark
    undecided: str = ""
    _base: int = 0  # releases that are counted, wherever they were made
    _found: dict[str, int] = field(default_factory=dict)  # by foreign process: what was counted
    _words: dict[str, Mark] = field(default_factory=dict)  # by peer: its unsigned word
    _seconds: dict[str, Mark] = field(default_factory=dict)  # by key: of its other process
    _processes: dict[str, _Processes] = field(default_factory=dict)  # by key
    _said: str = ""
    _last: tuple[Message, Message] | None = None  # a message of the policy, without and with mark

    @classmethod
    def of(
        cls,
        context: NodeContext,
        members: Members,
        held: Snapshot,
        past: Past,
        prove: Prove,
    ) -> Lives:
        """Return the lives as a snapshot and a privacy account hold them."""
        released = max(held.released, past.released)
        own = Mark(
            process=context.process, run=held.redone, round=held.policy.round, released=released
        )
        marks = {name: one for name, one in held.marks.items() if name != context.name}
        lives = cls(context, members, prove, released, marks, own, past.undecided, released)
        lives._said = past.undecided
        return lives

    @property
    def mark(self) -> Mark | None:
        """Return this node's signed mark; None if it says nothing of its life."""
        if not self.context.process:
            return None
        if not self.own.proof:
            self.own = replace(self.own, proof=self.prove(self.own))
        return self.own

    def warnings(self) -> tuple[str, ...]:
        """Return what is wrong now, one sentence each."""
        twice = sorted(one.name for one in self._processes.values() if one.twice_at >= 0)
        return (*([self._said] if self._said else ()), *(_twice(name) for name in twice))

    # The own life ---------------------------------------------------------------------------------

    def counted(self, effects: Sequence[Effect]) -> list[Effect]:
        """Return effects with the counts that a snapshot keeps; without prompts while silent."""
        found: list[Effect] = []
        for one in effects:
            if isinstance(one, Tune) and one.job.stage != MEASURE:
                self.released += 1
            elif isinstance(one, Adopt):
                marks = dict(self.marks)
                counted = replace(one.snapshot, released=self.released, marks=marks)
                one = Adopt(counted, one.givers)
            elif isinstance(one, Send) and one.message.phase not in PHASES:
                if self.undecided:
                    continue
                one = Send(one.to, self._marked(one.message), one.limit_s)
            found.append(one)
        return found

    def _marked(self, message: Message) -> Message:
        """Return a message with this node's mark; the same for each receiver of a message."""
        if self._last is None or self._last[0] is not message:
            self._last = message, replace(message, mark=self.mark)
        return self._last[1]

    def adopted(self, snapshot: Snapshot) -> None:
        """Note that a snapshot is durable: the mark says so from now on."""
        self.own = Mark(
            process=self.context.process,
            run=snapshot.redone,
            round=snapshot.policy.round,
            released=max(snapshot.released, self.own.released),
        )

    def told(self, event: Delivered) -> list[Effect]:
        """Learn what a peer knows of this node's life; return what follows."""
        mark = event.known
        if mark is None or not self.context.process:
            return []
        if not mark.proof:
            self._words[event.to] = mark
            believed = self._by_most()
            return [] if believed is None else self._foreign(believed)
        return self._foreign(mark)

    def _by_most(self) -> Mark | None:
        """Return the most that more than half of all members say; None if too few say anything."""
        remaining = self.members.remaining()
        words = [one for name, one in self._words.items() if name in remaining]
        needed = (len(remaining) + 1) // 2 + 1
        if len(words) < needed:
            return None
        return sorted(words, key=lambda one: (-one.released, one.process))[needed - 1]

    def _foreign(self, mark: Mark) -> list[Effect]:
        """Count what another process of this node's key released, and say so."""
        counted = self._found.get(mark.process, self._base)
        if mark.process == self.context.process or mark.released <= counted:
            return []
        lives = mark.process in self._found
        missing = mark.released - counted + (0 if lives else UNDER_WAY)
        self._found[mark.process] = mark.released
        self.released = max(self.released, mark.released + UNDER_WAY)
        kind, text = (TWICE, self._two()) if lives else (OLDER, self._older(mark, missing))
        if self.context.private:
            self.undecided = text
        self._said = text
        facts: dict[str, Json] = {"round": mark.round, "releases": missing}
        level: Level = "error" if self.context.private else "warning"
        return [Record(kind, text, level, facts), Spend(missing, self.undecided)]

    def _older(self, mark: Mark, missing: int) -> str:
        name = self.context.name
        return (
            f"the key of {name} has spoken in round {mark.round:,} elsewhere, and this state "
            f"directory is older: it was restored, copied or emptied. {missing:,} releases that it "
            f"does not know of count as spent. {self._advice}"
        )

    def _two(self) -> str:
        return (
            f"another process speaks with the key of {self.context.name} now: stop one of the two, "
            f"because what it releases counts here, too. {self._advice}"
        )

    @property
    def _advice(self) -> str:
        name = self.context.name
        if not self.context.private:
            return "Put the newest state directory back, if there is one"
        return (
            "With privacy on the node sends no prompts until you decide: stop it and put the "
            f"newest state directory back, or let it go on from here with: fednode accept {name}"
        )

    def accept(self) -> list[Effect]:
        """Let the node speak again, because its operator says so."""
        self.undecided = self._said = ""
        return [Spend(0)]

    # Peers' lives ---------------------------------------------------------------------------------

    def heard(self, now: float, sender: str, mark: Mark | None, late_s: float) -> list[Effect]:
        """Note a peer's mark.

        late_s: a message of a peer's earlier process that comes within this time after its present
        process began to speak was long on its way, and says nothing. If the present process was
        heard no longer than that, its own messages were on their way, and the other one lives;
        once for each process.
        """
        if mark is None:
            return []
        key = self._key(sender)
        self._keep(key, mark)
        seen = self._processes.setdefault(key, _Processes(sender, mark.process, now, now))
        if 0 <= seen.twice_at < now - 10 * late_s:
            seen.twice_at, seen.former, seen.late = -1.0, (), ()
        if mark.process == seen.present:
            seen.until = now
            return []
        if mark.process in seen.former and now - seen.since <= late_s:
            return []
        if mark.process not in seen.former:
            seen.follows(mark.process, now)
            return []
        if seen.until - seen.since <= late_s and mark.process not in seen.late:
            seen.late = (*seen.late, seen.present)[-FORMER_MAX:]
            seen.follows(mark.process, now)
            return []
        new, seen.twice_at = seen.twice_at < 0, now
        return [Record(TWICE, _twice(sender), "warning", {"peer": sender})] if new else []

    def _key(self, peer: str) -> str:
        """Return what a peer's marks are kept under: the id of its key, or its name without keys.

        What was kept under the name before the id was known belongs to the id.
        """
        id = self.members[peer].id if peer in self.members else ""
        if id:
            _move(self.marks, peer, id)
            _move(self._seconds, peer, id)
            _move(self._processes, peer, id)
        return id or peer

    def _keep(self, key: str, mark: Mark) -> None:
        """Keep the newest mark of a key, and the newest of another process beside it."""
        held = self.marks.get(key)
        if held is None or mark.released >= held.released:
            if held is not None and held.process != mark.process:
                self._seconds[key] = held
            self.marks[key] = mark
        elif mark.process != held.process:
            self._seconds[key] = mark
        for kept in (self.marks, self._seconds, self._processes):
            _trim(kept)

    def known(self, peer: str) -> Mark | None:
        """Return the newest mark of a peer's key; None if the key has said nothing."""
        return self.marks.get(self._key(peer))

    def answer(self, sender: str, mark: Mark | None) -> Mark | None:
        """Return what to tell a peer that sent a mark: what other processes of its key have said.

        None if there is nothing that the peer need know.
        """
        key = self._key(sender)
        held = self.marks.get(key)
        if mark is None or held is None:
            return None
        if held.process == mark.process:
            seen, held = self._processes.get(key), self._seconds.get(key)
            return held if seen is not None and seen.twice_at >= 0 else None
        return held if held.released > mark.released else None


def _move(kept: dict[str, Kept], name: str, id: str) -> None:
    if name in kept:
        kept.setdefault(id, kept.pop(name))


def _trim(kept: dict[str, Any]) -> None:
    if len(kept) > KEYS_MAX:
        del kept[next(iter(kept))]


def _twice(name: str) -> str:
    return (
        f"two processes speak with the key of {name}: its state directory was copied, or its key "
        "was stolen. Let its operator stop one of them"
    )
