"""The alphabet of the machine: events go in, effects come out; nothing else crosses the edge.

Hosts (daemon, simulator, experiment) perform effects in the order given. Only Adopt is waited for:
a Send that follows an Adopt starts when the adopted state is durable. A Send ends in exactly one
Delivered or Undelivered, a Tune in one Tuned or TuneFailed, an Adopt in one Adopted or AdoptFailed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from node.core.types import Job, Json, Message, Report, Snapshot, Tensors, Update

Command = Literal["pause", "resume", "leave", "retune", "rollback"]
Level = Literal["debug", "info", "warning", "error"]
AckCode = Literal["ok", "duplicate", "stale", "refused", "invalid", "busy", "silent"]


# Events ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The host is listening and effects can be performed."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """The host is about to stop: start nothing new."""


@dataclass(frozen=True, slots=True)
class Commanded:
    """An operator asked for something through the admin RPC."""

    command: Command


@dataclass(frozen=True, slots=True)
class Told:
    """News of members from elsewhere than a member: an introducer, or the operator."""

    news: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class Misbehaved:
    """The host saw a peer do what no correct node does, before any message of it was read."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class RoundDue:
    """The kernel lets a round begin, from `start` where it rolls back. Kernel to policy only.

    behind: the live peers that by their own word have this round still before them; nobody in a
    mesh of two. members: all others that this node knows of, live or not, but those that left or
    were revoked; empty if the host does not say.
    """

    round: int
    start: Tensors | None = None
    behind: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PeerUp:
    """A peer answers and speaks our configuration. Kernel to policy only."""

    peer: str


@dataclass(frozen=True, slots=True)
class PeerDown:
    """A peer stopped answering. Kernel to policy only."""

    peer: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message arrived and decoded; token names the waiting sender for Answer."""

    message: Message
    token: int = 0


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver acknowledged a message."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A message was not taken: code "unreachable" (nobody answered) or the peer's own code.

    sent: False if the message never left this node, which says nothing of the peer. Then the code
    is "busy" if a later try may get through, and "invalid" if none will.
    """

    to: str
    message: Message
    code: str
    reason: str
    sent: bool = True


def acknowledged(to: str, message: Message, code: AckCode, detail: str) -> Delivered | Undelivered:
    """Return how a send ended that was answered with an acknowledgement."""
    if code in {"ok", "duplicate"}:  # taken now, or taken before
        return Delivered(to, message)
    return Undelivered(to, message, code, detail)


@dataclass(frozen=True, slots=True)
class Tuned:
    """The job ended well."""

    job: Job
    report: Report


@dataclass(frozen=True, slots=True)
class TuneFailed:
    """The job ended in an error or was cancelled."""

    job: Job
    reason: str


@dataclass(frozen=True, slots=True)
class Adopted:
    """The snapshot is durable."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class AdoptFailed:
    """The snapshot could not be made durable (a full disk, say)."""

    snapshot: Snapshot
    reason: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer ran out. A name set again before it fired fires once, at the later time."""

    name: str


Event = (
    Started
    | Stopping
    | Commanded
    | Told
    | Misbehaved
    | RoundDue
    | PeerUp
    | PeerDown
    | Received
    | Delivered
    | Undelivered
    | Tuned
    | TuneFailed
    | Adopted
    | AdoptFailed
    | TimerFired
)


# Effects -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Put a message into the peer's bounded outbox.

    limit_s: longest wait for the answer; 0 leaves it to the host, which looks at the size.
    """

    to: str
    message: Message
    limit_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Acknowledge the message with this token; detail is a sentence for the other end."""

    token: int
    code: AckCode
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Fire TimerFired(name) after delay_s seconds; replaces a timer of the same name."""

    name: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Forget a timer; harmless where there is none."""

    name: str


@dataclass(frozen=True, slots=True)
class Tune:
    """Run a job on the learner. At most one is under way."""

    job: Job


@dataclass(frozen=True, slots=True)
class Adopt:
    """Make a snapshot durable. The kernel fills in what is the node's and not the policy's.

    givers: the peers whose contributions it holds, for people.
    """

    snapshot: Snapshot
    givers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """Tell people something happened: a line in the log, an event in Watch, a counter.

    kind: a dotted name ("peer.up", "message.refused", "round.adopted").
    level: warnings and errors are shown in status.
    """

    kind: str
    text: str
    level: Level = "info"
    fields: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Introduce:
    """Reach a peer at an address from now on."""

    peer: str
    address: str


Effect = Send | Introduce | Answer | SetTimer | CancelTimer | Tune | Adopt | Record
