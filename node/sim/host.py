"""What a simulated machine is: a node, its disk, its clock, and what is under way on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from node.core.events import AckCode, Effect, Event, Record
from node.core.kernel import Kernel
from node.core.types import Message, Snapshot
from node.learn.learner import Learner
from node.transports.framing import wire_bytes
from node.wire.codec import Dtype

Say = Callable[[str, Message], list[tuple[str, Message]]]
"""What a hostile node says in place of a message to somebody: to whom what, any number of times."""
Answers = Callable[[str, Message, AckCode, str], tuple[AckCode, str]]
"""How a hostile node answers a message of somebody, in place of a code and a sentence."""
Build = Callable[[Snapshot | None], Kernel]
"""Make a node's kernel, from what its disk holds (None at its first start)."""


def _as_it_is(_: str, __: Message, code: AckCode, detail: str) -> tuple[AckCode, str]:
    return code, detail


@dataclass(frozen=True, slots=True)
class Traitor:
    """A hostile node's tongue: it changes what its node sends and how its node answers."""

    say: Say
    answer: Answers = _as_it_is

    def __call__(self, to: str, message: Message) -> list[tuple[str, Message]]:
        """Return what is said in place of a message."""
        return self.say(to, message)


@dataclass(slots=True)
class Meter:
    """Bytes of all nodes' messages of one phase, as sent; answers are not counted.

    payload: numbers alone. serialized: frames. wire: with gRPC and HTTP/2 (an estimate).
    """

    messages: int = 0
    payload: int = 0
    serialized: int = 0
    wire: int = 0

    def count(self, payload: int, frame: int) -> None:
        """Add one message."""
        self.messages += 1
        self.payload += payload
        self.serialized += frame
        self.wire += wire_bytes(frame)


@dataclass(slots=True)
class Exchange:
    """A message on its way; done once its sender knows how it ended."""

    sender: str
    life: int
    to: str
    message: Message
    done: bool = False


@dataclass(slots=True)
class Host:
    """One node's machine: what runs on it, and what stays when it crashes.

    life: counts starts; what was under way in an earlier life is lost. full: commits fail.
    tune_s, disk_s: virtual seconds that a tuning and a commit take. clock_s: what its clock is
    ahead of the world's. durable: what the disk holds. records: for people. waiting: effects that
    follow a commit under way; events: those that came meanwhile. addresses: of peers that said
    where they are reached; a peer is reached at its name alone.
    """

    build: Build
    learner: Learner
    dtype: Dtype
    tune_s: float
    kernel: Kernel | None = None
    life: int = 0
    durable: Snapshot | None = None
    full: bool = False
    disk_s: float = 0.0
    clock_s: float = 0.0
    traitor: Traitor | None = None
    waiting: deque[Effect] | None = None
    events: deque[Event] = field(default_factory=deque)
    timers: dict[str, int] = field(default_factory=dict)
    answers: dict[int, Exchange] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    history: list[Snapshot] = field(default_factory=list)
