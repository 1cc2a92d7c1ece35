"""Nodes that hold another state than the rest: which contributions to merge.

Each contribution names the digest of what its sender began from: the state after the last round,
or, in a later stage, the contributions that the stage before merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fednode.core.rounds.method import Round
from fednode.core.types import Message


@dataclass(frozen=True, slots=True)
class Judged:
    """Contributions that were compared with this node's own.

    heard: those to merge. note: what to record about the others, "" if there are none. base_agrees:
    as in `Round`. refused: whether most merged other contributions in the stage before, so that the
    round cannot go on.
    """

    heard: Mapping[str, Message]
    note: str = ""
    base_agrees: bool = True
    refused: bool = False


def first_stage(now: Round, heard: Mapping[str, Message], told: str) -> Judged:
    """Judge the contributions to a round's first stage; all of them are merged.

    told: the digest that this node's own contribution named, "" if it did not contribute; since
    then a catch-up may have changed what the node merges into.
    """
    base = now.held.digest
    others = ", ".join(peer for peer in heard if heard[peer].contributors != base)
    bases = [*([told] if told else []), *(message.contributors for message in heard.values())]
    note = f"round {now.number}: {others} began it with other prompts than this node"
    agrees = base_agrees(bases, base)
    return Judged(heard, note if others else "", agrees)


def later_stage(
    now: Round, heard: Mapping[str, Message], told: str, *, trusting: bool, own: bool = True
) -> Judged:
    """Judge the contributions to a later stage, by what their senders merged before it.

    told: the digest of what this node merged before it. own: whether this node contributes, too.
    """
    others = ", ".join(peer for peer in heard if heard[peer].contributors != told)
    if not others:
        return Judged(heard, "", now.base_agrees)
    note = f"round {now.number}: {others} merged prompts of other nodes than this node did"
    kept = like_minded(heard, told, trusting, own)
    return Judged(kept, note, now.base_agrees, refused=not kept)


def base_agrees(bases: Sequence[str], own: str) -> bool:
    """Tell whether more than half of all began from what this node merges into.

    bases: of all contributions, the digests that they began from.
    """
    return 2 * bases.count(own) > len(bases)


def like_minded(
    heard: Mapping[str, Message], base: str, trusting: bool, own: bool = True
) -> dict[str, Message]:
    """Return the contributions to a later stage that this node merges.

    base: the digest of the contributions that this node merged in the stage before. own: whether
    this node contributes, too. If more than half of all contributors merged the same as this node,
    the others are left out: a liar, whose
    set no honest node shares, stops nobody. Otherwise a robust merge takes all contributions and
    bears with some liars, and a trusting merge takes none.
    """
    same = {name: message for name, message in heard.items() if message.contributors == base}
    if 2 * (own + len(same)) > own + len(heard):
        return same
    return {} if trusting else dict(heard)
