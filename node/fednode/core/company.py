"""With how many peers a node's rounds were merged, and the sentences on it for every view.

The counts are a mapping: number of peers whose prompts a round's result holds -> rounds. A round
that merged nothing counts under 0, whatever the reason: no live peer, a deadline, refused prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from fednode.core.events import Adopt, Effect
from fednode.core.types import Snapshot

Counts = Mapping[int, int]
BY_WISH: Final = "local"
"""The policy that exchanges nothing. Its nodes, and a node without peers, are alone by wish."""
SPARSE: Final = 0.5
"""A node that merged fewer than this share of its rounds says so."""


def counted(counts: Counts, redone: int, effects: Sequence[Effect]) -> list[Effect]:
    """Return a policy's effects; each snapshot that it adopts counts its own round, too.

    redone: how often the node began its rounds again, for the snapshots.
    """
    return [
        replace(effect, snapshot=_counted(counts, redone, effect))
        if isinstance(effect, Adopt)
        else effect
        for effect in effects
    ]


def _counted(counts: Counts, redone: int, adopt: Adopt) -> Snapshot:
    company = _plus(counts, len(adopt.givers))
    return replace(adopt.snapshot, company=company, redone=redone)


def _plus(counts: Counts, peers: int) -> dict[int, int]:
    more = dict(counts)
    more[peers] = more.get(peers, 0) + 1
    return dict(sorted(more.items()))


def ran(counts: Counts) -> int:
    """Return the number of counted rounds."""
    return sum(counts.values())


def merged(counts: Counts) -> int:
    """Return the number of counted rounds that merged a peer's prompts."""
    return sum(rounds for peers, rounds in counts.items() if peers > 0)


def never(counts: Counts, by_wish: bool) -> bool:
    """Tell whether a node ran rounds, merged none of them, and was meant to merge them."""
    return not by_wish and ran(counts) > 0 and merged(counts) == 0


def sentence(counts: Counts, by_wish: bool) -> str:
    """Return how many rounds merged a peer's prompts; "" if no round was counted."""
    every = ran(counts)
    if not every:
        return ""
    if by_wish:
        return f"all {every} rounds ran alone, as the settings ask"
    return f"{merged(counts)} of {every} rounds merged a peer's prompts"


def warning(counts: Counts, by_wish: bool) -> str:
    """Return the sentence if fewer than half of at least two rounds were merged; else ""."""
    few = not by_wish and ran(counts) > 1 and merged(counts) < SPARSE * ran(counts)
    return sentence(counts, by_wish) if few else ""
