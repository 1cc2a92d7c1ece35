"""Settings of the pure core: what each does and what it trades. config.py only reads them in.

`__pydantic_config__` makes an unknown key an error where pydantic validates; it imports nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

Barrier = Literal["async", "quorum", "sync"]
STRICT = {"extra": "forbid"}
LONGEST_S = 1e7
"""Of any time in settings, some four months: a longer one is a slip of the pen."""


def bounded(key: str, value: float, least: float, most: float = math.inf) -> None:
    """Raise ValueError, with the value and the limits, unless least <= value <= most."""
    if not (math.isfinite(value) and least <= value <= most):
        limits = f"at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        raise ValueError(f"{key} is {value:g}; it must be {limits}.")


def positive(key: str, value: float, most: float = math.inf) -> None:
    """Raise ValueError, with the value and the limits, unless 0 < value <= most."""
    if not (math.isfinite(value) and 0 < value <= most):
        limits = "above 0" if most == math.inf else f"above 0 and at most {most:g}"
        raise ValueError(f"{key} is {value:g}; it must be {limits}.")


@dataclass(frozen=True, slots=True)
class StartSettings:
    """When round one starts: once `peers` peers answer, or after timeout_s at the latest."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    peers: int = 1
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        bounded("rounds.start.peers", self.peers, 0)
        bounded("rounds.start.timeout_s", self.timeout_s, 0, LONGEST_S)


@dataclass(frozen=True, slots=True)
class RoundSettings:
    """When rounds begin and end, and how many there are.

    mode: "async" waits for nobody; "quorum" until `quorum` nodes (own included) contributed or the
    deadline passed; "sync" until all live peers did or the deadline passed. None: the policy's own.
    max: rounds to run; 0 for no end. A node that is through keeps serving its state and its peers.
    min_interval_s: least time between the starts of two rounds; more of it lets slower peers be
    heard in async mode, less is faster.
    deadline_s: longest wait for others in a round; longer waits for stragglers, shorter drops them.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    mode: Barrier | None = None
    max: int = 100
    quorum: int = 2
    deadline_s: float = 60.0
    min_interval_s: float = 0.0
    start: StartSettings = field(default_factory=StartSettings)

    def __post_init__(self) -> None:
        bounded("rounds.max", self.max, 0)
        bounded("rounds.quorum", self.quorum, 1)
        positive("rounds.deadline_s", self.deadline_s, LONGEST_S)
        bounded("rounds.min_interval_s", self.min_interval_s, 0, LONGEST_S)


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """Guard against a merge that makes the node worse, by its own validation split.

    keep_best: predict and export with the tuned prompts of the best round, not of the last.
    rollback_drop: when validation accuracy falls by more than this below the best (0..1), the next
    round starts from the best prompts instead of the merged ones; 1.0 turns it off.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    keep_best: bool = False
    rollback_drop: float = 1.0

    def __post_init__(self) -> None:
        bounded("guard.rollback_drop", self.rollback_drop, 0, 1)


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """How peers are watched. A peer is suspect after one failed probe and dead after suspect_after.

    probe_interval_s: between hellos to a peer; shorter notices a death sooner, costs a small
    message each. probe_timeout_s: for the answer. suspicion_probes: failed probes in a row before
    a peer counts as dead; death is noticed within about probe_interval_s * suspicion_probes +
    probe_timeout_s seconds.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    probe_interval_s: float = 1.0
    probe_timeout_s: float = 0.5
    suspicion_probes: int = 3

    def __post_init__(self) -> None:
        positive("membership.probe_interval_s", self.probe_interval_s, LONGEST_S)
        positive("membership.probe_timeout_s", self.probe_timeout_s, LONGEST_S)
        bounded("membership.suspicion_probes", self.suspicion_probes, 1)
