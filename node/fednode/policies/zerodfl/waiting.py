"""Where a ZeroDFL node is in its round: a frozen value says the one thing that it waits for.

    async:  Idle -> [Judging ...] -> Training -> Adopting -> Idle
    sync:   Idle -> Training -> Exchanging -> [Judging ...] -> Adopting -> Idle

Judging comes only with `policy.admit_rise`, once for each received row. After a job that failed the
node is Idle, and the kernel begins the round again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fednode.core.policy import Activity
from fednode.core.rounds.progress import Idle, Training
from fednode.core.types import Job
from fednode.policies.zerodfl.trial import Trial


@dataclass(frozen=True, slots=True)
class Exchanging:
    """The node waits until its peers have finished the round. metrics: of its tuning."""

    metrics: Mapping[str, float]
    phase: ClassVar[Activity] = Activity.EXCHANGING


@dataclass(frozen=True, slots=True)
class Judging:
    """The node waits for the validation loss with the row on trial.

    metrics: of the round's tuning; empty if the tuning comes after the trial.
    """

    job: Job
    trial: Trial
    metrics: Mapping[str, float]
    phase: ClassVar[Activity] = Activity.TUNING


@dataclass(frozen=True, slots=True)
class Adopting:
    """The node waits for the commit of the round."""

    phase: ClassVar[Activity] = Activity.ADOPTING


Waiting = Idle | Training | Exchanging | Judging | Adopting
