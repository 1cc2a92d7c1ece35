"""Settings of the pure core: what each does and what it trades. config.py only reads them in.

`__pydantic_config__` makes an unknown key an error where pydantic validates; it imports nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

Barrier = Literal["async", "quorum", "sync"]
STRICT = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class StartSettings:
    """When round one starts: once `peers` peers answer, or after timeout_s at the latest."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    peers: int = 1
    timeout_s: float = 30.0


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
