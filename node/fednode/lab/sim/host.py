"""A simulated machine: a node, its disk, its clock, and the operations in progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from fednode.core.events import AckCode, Effect, Event, Record
from fednode.core.kernel import Kernel
from fednode.core.types import Account, Dtype, Message, Snapshot
from fednode.learn.learner import Learner, Release
from fednode.wire import codec

Say = Callable[[str, Message], list[tuple[str, Message]]]
"""Return the (receiver, message) pairs that a hostile node sends in place of one message."""
Answers = Callable[[str, Message, AckCode, str], tuple[AckCode, str]]
"""Return the code and the detail with which a hostile node answers a message from a peer."""
Later = Callable[[int], int]
"""Return the round in which a hostile node says that an earlier start of a peer was."""


Build = Callable[..., Kernel]
"""Make a node's kernel at a start, of the snapshot on its disk (or None) and its account."""


@lru_cache(maxsize=64)
def travelled(code: AckCode, detail: str, later: int = 0) -> codec.Ack:
    """Return an honest verdict as its receiver reads it."""
    return codec.decode_ack(codec.encode_ack(code, detail, later))


@dataclass(frozen=True, slots=True)
class Liar:
    """The behaviour of a hostile node: it changes what its node sends and how its node answers."""

    say: Say = lambda to, message: [(to, message)]
    answer: Answers = lambda _, __, code, detail: (code, detail)
    later: Later = lambda later: later


@dataclass(slots=True)
class InFlight:
    """A message and its answer; done: the sender knows how the exchange ended."""

    sender: str
    boot: int
    to: str
    message: Message
    done: bool = False


@dataclass(slots=True, kw_only=True)
class Host:
    """One node's machine: what runs on it, and what survives a crash.

    Attributes:
        boot: the number of starts so far; operations of an earlier one are lost
        full: commits fail
        tune_s, disk_s: virtual seconds that a tuning and a commit take
        clock_s: seconds by which the node's clock is ahead of the world's clock
        durable: the snapshot on the disk
        backup: a copy of an earlier snapshot
        release: clips reports of training and adds noise; None if privacy is off
        account: the node's privacy account
        records: what the node reported to people
        waiting: effects that follow a commit in progress (None: no commit is in progress)
        events: events that arrived during that commit
        addresses: where it calls peers, as they announced; a node's true address is its name
    """

    build: Build
    learner: Learner
    dtype: Dtype
    tune_s: float
    release: Release | None = None
    kernel: Kernel | None = None
    boot: int = 0
    durable: Snapshot | None = None
    backup: tuple[Snapshot | None, Account] | None = None
    account: Account = field(default_factory=Account)
    full: bool = False
    disk_s: float = 0.0
    clock_s: float = 0.0
    liar: Liar | None = None
    waiting: deque[Effect] | None = None
    events: deque[Event] = field(default_factory=deque)
    timers: dict[str, int] = field(default_factory=dict)
    answers: dict[int, InFlight] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    history: list[Snapshot] = field(default_factory=list)

    def wipe(self) -> None:
        """Erase the disk of a node that is off."""
        self.durable, self.account = None, Account()

    def back_up(self) -> None:
        self.backup = self.durable, self.account

    def restore(self) -> None:
        """Put the copy back on the disk of a node that is off."""
        if self.backup is not None:
            self.durable, self.account = self.backup
