"""How many of a node's rounds merged what peers sent, and the sentences on it for every view.

A round that merged nothing counts as a round, whatever the reason: no live peer, a deadline,
refused prompts.
"""

from __future__ import annotations

from typing import Final

from fednode.core.types import MergeCounts

BY_WISH: Final = "local"
"""The policy that exchanges nothing. Its nodes, and a node without peers, are alone by wish."""
SPARSE: Final = 0.5
"""A node that merged fewer than this share of its rounds says so."""


def never(counts: MergeCounts, by_wish: bool) -> bool:
    """Tell whether a node ran rounds, merged none of them, and was meant to merge them."""
    return not by_wish and counts.rounds > 0 and counts.merged == 0


def sentence(counts: MergeCounts, by_wish: bool) -> str:
    """Return how many rounds merged what peers sent; "" if no round was counted."""
    if not counts.rounds:
        return ""
    if by_wish:
        return f"all {counts.rounds} rounds ran alone, as the settings ask"
    return f"{counts.merged} of {counts.rounds} rounds merged what peers sent"


def warning(counts: MergeCounts, by_wish: bool) -> str:
    """Return the sentence if fewer than half of at least two rounds were merged; else ""."""
    few = not by_wish and counts.rounds > 1 and counts.merged < SPARSE * counts.rounds
    return sentence(counts, by_wish) if few else ""
