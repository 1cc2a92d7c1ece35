"""The mesh's settings documents as status and page show them, and what decides on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from fednode.wire.gen import status_pb2

DECISIONS: Final = ("propose", "take", "refuse")
"""The commands that a node takes on settings documents, from its operator alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A document that is newer than the one in force.

    signer: the name of the sponsor. start: the round from which on it holds. changes: lines.
    decision: "", "preparing", "accepted" or "refused". accepted_by, run_by, undecided: names of
    peers. fault: why this node cannot run under it.
    """

    number: int
    digest: str
    signer: str
    start: int
    changes: tuple[str, ...]
    decision: str = ""
    accepted_by: tuple[str, ...] = ()
    run_by: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The settings in force, and those that are proposed, newest first.

    number: 0 while the settings stand in the files of the nodes alone. others: peers that run under
    other settings. start: the round from which on they hold. members: how each peer stands to them
    (fednode.core.documents.Standing).
    """

    number: int
    digest: str
    signer: str
    proposals: tuple[Proposal, ...] = ()
    others: tuple[str, ...] = ()
    start: int = 0
    members: Mapping[str, str] = field(default_factory=dict)


class Deciding(Protocol):
    """Shows the documents of a node, and takes its operator's decisions (fednode.app.settling).

    The calls raise FednodeError with one sentence if they cannot do what is asked.
    """

    def shown(self) -> Shown:
        """Return what there is to show."""
        ...

    async def propose(self, proof: bytes) -> str:
        """Take a document that the operator signed; return what happens."""
        ...

    async def take(self, which: str) -> str:
        """Accept a document; return what happens."""
        ...

    async def refuse(self, which: str) -> str:
        """Refuse a document; return what happens."""
        ...


def reply_of(shown: Shown) -> status_pb2.SharedSettings:
    """Return what there is to show as a part of the status."""
    return status_pb2.SharedSettings(
        number=shown.number,
        digest=shown.digest,
        signer=shown.signer,
        others=shown.others,
        start=shown.start,
        members=shown.members if shown.number else {},
        proposals=[
            status_pb2.Proposal(
                number=one.number,
                digest=one.digest,
                signer=one.signer,
                start=one.start,
                changes=one.changes,
                decision=one.decision,
                accepted_by=one.accepted_by,
                run_by=one.run_by,
                undecided=one.undecided,
                fault=one.fault,
            )
            for one in shown.proposals
        ],
    )
