"""Events and effects: all that goes into the kernel, and all that comes out of it.

Hosts (daemon, simulator, experiment) perform effects in the order given. They wait only for Adopt:
a Send that follows an Adopt starts when the adopted state is durable. A Send ends in exactly one
Delivered or Undelivered, a Tune in one Tuned or TuneFailed, an Adopt in one Adopted or AdoptFailed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from fednode.core.types import Job, Json, MemberUpdate, Message, Report, Snapshot

Command = Literal["pause", "resume", "leave", "alone", "resume --older-state"]
Level = Literal["debug", "info", "warning", "error"]
AckCode = Literal["ok", "stale", "refused", "invalid", "busy", "silent", "inactive"]
"""The receiver's verdict on a message.

ok: taken. inactive: taken by a node that takes part in no round. stale: not taken, because it comes
too late, or because the two nodes see other members. refused: of no member, or of other settings.
invalid: no correct node sends it. busy: not now. silent: the third node of an indirect ping does
not answer.
"""


# Events ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The host listens and can perform effects."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """The host is about to stop; the kernel starts nothing new."""


@dataclass(frozen=True, slots=True)
class Commanded:
    """An operator asked for something through the Control RPC."""

    command: Command


@dataclass(frozen=True, slots=True)
class MemberNews:
    """News of members that the host knows, not from a member."""

    news: tuple[MemberUpdate, ...]


@dataclass(frozen=True, slots=True)
class Misbehaved:
    """The host saw a peer do what no correct node does, before it could read a message."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class RoundDue:
    """The kernel lets a round begin. Kernel to policy only.

    behind: the live peers that, by their own messages, have not reached this round; empty in a mesh
    of two nodes, and in async mode, where no round waits.
    members: all other members that this node knows, live or not, except those that left or were
    revoked. None if the kernel did not say, as in tests of a policy.
    """

    round: int
    behind: frozenset[str] = frozenset()
    members: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class PeerUp:
    """A peer is live and a neighbour in the topology from now on. Kernel to policy only."""

    peer: str


@dataclass(frozen=True, slots=True)
class PeerDown:
    """A peer is no longer live, or no longer a neighbour. Kernel to policy only."""

    peer: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """A linked peer says which state it holds after a round. Kernel to policy only."""

    peer: str
    round: int
    digest: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message arrived and was decoded. token: identifies the waiting sender for Answer."""

    message: Message
    token: int = 0


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver acknowledged a message.

    note: why it cannot reach this node; "" if it can. active: whether the receiver takes part in
    rounds. later: the round that an earlier start of this node said, if it is later than the
    message's; else 0.
    """

    to: str
    message: Message
    note: str = ""
    active: bool = True
    later: int = 0


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A message was not taken.

    code: "unreachable" (nobody answered) or the code of the peer's answer.
    sent: False if the message never left this node, which says nothing about the peer. Then the
    code is "busy" if a later attempt may succeed, and "invalid" if none can.
    """

    to: str
    message: Message
    code: str
    reason: str
    sent: bool = True


def acknowledged(
    to: str, message: Message, code: AckCode, detail: str, later: int = 0
) -> Delivered | Undelivered:
    """Return the event for a send that was answered with this acknowledgement."""
    if code in {"ok", "inactive"}:
        return Delivered(to, message, detail, active=code == "ok", later=later)
    return Undelivered(to, message, code, detail)


@dataclass(frozen=True, slots=True)
class Tuned:
    """The job succeeded."""

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
    """A snapshot could not be made durable (for example, the disk is full).

    adopt: what was asked for. The kernel asks for it again; the policy goes on waiting.
    """

    adopt: Adopt
    reason: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer ran out. A timer that is set again before it fires only fires at its new time."""

    name: str


HostEvent = Started | Stopping | Commanded | MemberNews | Misbehaved | TimerFired
PolicyEvent = RoundDue | PeerUp | PeerDown | Claimed
WorkEvent = Received | Delivered | Undelivered | Tuned | TuneFailed | Adopted | AdoptFailed
Event = HostEvent | PolicyEvent | WorkEvent


# Effects -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Put a message into the peer's bounded outbox.

    limit_s: longest wait for the answer; 0: the host decides by the message's size.
    """

    to: str
    message: Message
    limit_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Acknowledge the message with this token.

    detail: a sentence for the sender. later: as in Delivered.
    """

    token: int
    code: AckCode
    detail: str = ""
    later: int = 0


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Fire TimerFired(name) after delay_s seconds, in place of any timer of the same name."""

    name: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Cancel a timer; without effect if there is no such timer."""

    name: str


@dataclass(frozen=True, slots=True)
class Tune:
    """Run a job on the learner. At most one job is under way."""

    job: Job


@dataclass(frozen=True, slots=True)
class Adopt:
    """Make a snapshot durable.

    The kernel adds the fields that belong to the node, not to the policy.
    givers: the peers whose contributions the snapshot holds, for people.
    """

    snapshot: Snapshot
    givers: tuple[str, ...] = ()


ASKS: Final = "admission.asks"
"""The kind of the record on a site that waits to be admitted; it is over once it is a member."""


@dataclass(frozen=True, slots=True)
class Record:
    """Report to people that something happened: a line in the log, an event in Watch, a counter.

    kind: a dotted name ("peer.up", "message.refused", "round.adopted").
    level: status shows warnings and errors.
    cause: a defect that the node survived; the host writes its details to a file.
    """

    kind: str
    text: str
    level: Level = "info"
    fields: Mapping[str, Json] = field(default_factory=dict)
    cause: Exception | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Introduce:
    """Use this address for a peer from now on."""

    peer: str
    address: str


@dataclass(frozen=True, slots=True)
class TurnAway:
    """Close a peer's connections, and refuse new ones for some seconds."""

    peer: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Spend:
    """Count releases that this node's state does not know of in its privacy account.

    undecided: why the node is paused until its operator decides, to be stored; "" if it is not.
    """

    releases: int
    undecided: str = ""


Order = Send | Answer | SetTimer | CancelTimer | Tune | Adopt
Effect = Order | Record | Introduce | TurnAway | Spend
