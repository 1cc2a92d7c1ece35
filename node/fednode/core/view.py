"""The view of a node that its kernel gives to status."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fednode.core.life import Life
from fednode.core.members.table import Member
from fednode.core.policy import Activity
from fednode.core.types import NO_ROUNDS, MergeCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelView:
    """One node as status shows it. apart: the peers that hold other prompts (see agreement.py).

    awaited: the peers that the first round waits for, "" if it waits for nobody. start_by: when
    that wait ends, on the host's clock. warnings: which nodes cannot reach each other now.
    merge_counts: rounds, and rounds that merged a peer's prompts. by_wish: the node is meant to be
    alone.
    """

    life: Life
    phase: Activity
    round: int
    rounds_max: int
    metrics: Mapping[str, float]
    peers: tuple[Member, ...]
    refused: Mapping[str, int]
    best_round: int
    best_validation: float
    alone: bool
    apart: tuple[str, ...] = ()
    awaited: str = ""
    start_by: float = math.inf
    warnings: tuple[str, ...] = ()
    merge_counts: MergeCounts = NO_ROUNDS
    by_wish: bool = False
