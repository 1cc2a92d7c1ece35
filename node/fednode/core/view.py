"""What status reads of a node's kernel: its life, its rounds and its peers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fednode.core.members.table import Member
from fednode.core.policy import Activity
from fednode.core.types import NO_ROUNDS, SPLITS, ZERO_SHOT, MergeCounts


class Life(StrEnum):
    """A node's life. In LOADING a node has no kernel yet.

    loading --(model and images are there)--> waiting
    waiting --(enough peers, or the time is up)--> running --(rounds.max adopted)--> finished
    running <--pause, resume--> paused    any --leave--> leaving    any --SIGTERM--> stopping

    A node that waits or has finished can be paused, too; after "resume" it runs.
    """

    LOADING = "loading"
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    LEAVING = "leaving"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelView:
    """One node as status shows it. apart: the peers that hold other prompts (see agreement.py).

    awaited: the peers that the first round waits for, "" if it waits for nobody. start_by: when
    that wait ends, on the host's clock. warnings: what people should know now, such as which nodes
    cannot reach each other. merge_counts: rounds, and rounds that merged a peer's prompts. by_wish:
    the node is meant to be alone.
    """

    life: Life
    activity: Activity
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


def figures(metrics: Mapping[str, float]) -> str:
    """Return loss and accuracies in a fixed order, then all other metrics, for people."""
    order = [key for key in ("loss", *SPLITS) if key in metrics]
    return ", ".join(
        f"{key.replace('_', ' ')} {f'{100 * value:.1f} %' if is_share(key) else f'{value:.4g}'}"
        for key in (*order, *sorted(metrics.keys() - set(order)))
        for value in (metrics[key],)
    )


def is_share(key: str) -> bool:
    """Tell whether a metric is an accuracy from 0 to 1."""
    return key in SPLITS or key.startswith(ZERO_SHOT)
