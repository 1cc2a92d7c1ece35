"""Where a node is in a mesh-wide round: what it waits for, and what it noted.

The node waits for one thing at a time, which a small frozen value says: Idle, Training, Exchanging,
TrainingOwn, Comparing, Measuring or Adopting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from fednode.core.policy import Activity
from fednode.core.rounds.method import Contribution
from fednode.core.types import EMPTY, Job, Tensors


@dataclass(frozen=True, slots=True)
class Idle:
    """The node waits for the next round."""

    phase: ClassVar[Activity] = Activity.IDLE


@dataclass(frozen=True, slots=True)
class Training:
    """The node waits for the job of the stage under way."""

    job: Job
    phase: ClassVar[Activity] = Activity.TUNING


@dataclass(frozen=True, slots=True)
class Exchanging:
    """The node waits for the contributions of its peers, and for their acknowledgements."""

    phase: ClassVar[Activity] = Activity.EXCHANGING


@dataclass(frozen=True, slots=True)
class TrainingOwn:
    """The node waits for the separate training of its personal prompts, after the last merge."""

    job: Job
    phase: ClassVar[Activity] = Activity.TUNING


@dataclass(frozen=True, slots=True)
class Comparing:
    """The node waits for the validation loss of the merged or of its own prompts.

    losses: those measured so far, first of the merged prompts, then of the own prompts.
    """

    job: Job
    merged: Tensors
    own: Tensors
    losses: tuple[float, ...] = ()
    phase: ClassVar[Activity] = Activity.TUNING


@dataclass(frozen=True, slots=True)
class Measuring:
    """The node waits for the measurement of the prompts that it will use, the job's tensors."""

    job: Job
    phase: ClassVar[Activity] = Activity.TUNING


@dataclass(frozen=True, slots=True)
class Adopting:
    """The node waits for the commit of the round."""

    phase: ClassVar[Activity] = Activity.ADOPTING


Working = Training | TrainingOwn | Comparing | Measuring
"""The learner has a job."""
Waiting = Idle | Working | Exchanging | Adopting


@dataclass(slots=True)
class RoundNotes:
    """The engine's notes on the round under way.

    told: this node's own contributions as its peers see them, by stage; none if it does not take
    part. base: the digest of what this node began the stage from, which its contribution names.
    merged: digest of the contributions that the stage before merged, "" in the first stage. tuned:
    what the first stage's job tuned, if it may serve as personal prompts. givers: peers whose
    contributions were merged last.
    """

    told: dict[str, Contribution] = field(default_factory=dict)
    base: str = ""
    merged: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    tuned: Tensors = EMPTY
    givers: tuple[str, ...] = ()
