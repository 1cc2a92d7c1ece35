"""The settings that a mesh shares, and proposed changes of them, as lines for people."""

from __future__ import annotations

from typing import Final

from fednode.wire.gen import status_pb2

STANDINGS: Final = {
    "runs": "under these settings",
    "accepted": "accepted, begins at round {start} or before",
    "undecided": "not accepted yet; `fednode settings take` there",
    "unheard": "has not heard of these settings yet",
    "newer": "under newer settings, which are proposed here",
    "silent": "has said nothing since this node started",
}
"""What the words of SharedSettings.members mean."""


def in_force(settings: status_pb2.SharedSettings) -> str:
    """Return which settings a node runs under; "" for those of its own files."""
    if not settings.number:
        return ""
    return f"settings {settings.number}, signed by {settings.signer} ({settings.digest[:12]})"


def said(settings: status_pb2.SharedSettings) -> list[str]:
    """Return which settings a node runs under, how each peer stands to them, what is proposed."""
    lines = [f"in force: {in_force(settings) or 'the settings of the files of each node'}"]
    for standing, words in STANDINGS.items():
        names = sorted(name for name, said in settings.members.items() if said == standing)
        if names:
            lines.append(f"  {', '.join(names)}: {words.format(start=settings.start)}")
    if settings.others and not settings.members:
        lines.append(f"under other settings: {', '.join(settings.others)}")
    for proposal in settings.proposals:
        lines += proposal_lines(proposal)
    if not settings.proposals:
        lines.append("no change is proposed")
    return lines


def proposal_lines(proposal: status_pb2.Proposal) -> list[str]:
    """Return what a proposed change says, and who has decided on it."""
    lines = [
        f"proposed: settings {proposal.number} ({proposal.digest[:12]}) by {proposal.signer}, from "
        f"round {proposal.start} on",
        *(f"  {line}" for line in proposal.changes),
        f"  here: {proposal.decision or 'not decided'}",
    ]
    if proposal.fault:
        lines.append(f"  it cannot be accepted here: {proposal.fault}")
    if proposal.accepted_by:
        lines.append(f"  accepted by {', '.join(proposal.accepted_by)}")
    if proposal.run_by:
        lines.append(f"  in force at {', '.join(proposal.run_by)}")
    if proposal.undecided:
        lines.append(f"  not accepted yet by {', '.join(proposal.undecided)}")
    if not proposal.decision:
        lines.append("  decide with `fednode settings take` or `fednode settings refuse`")
    return lines
