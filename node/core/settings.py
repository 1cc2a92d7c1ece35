"""Settings of the pure core: what each does and what it trades. config.py only reads them in.

`__pydantic_config__` makes an unknown key an error where pydantic validates; it imports nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Final, Literal

Barrier = Literal["async", "quorum", "sync"]
Initial = Literal["common", "own"]
"""Whether all nodes begin from the same prompts, or each node draws its own."""
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

    merged_rise: in mesh-wide rounds a node measures, predicts and exports with the merged prompts
    only where its validation loss is not above that of its own by more than this, in nats; its own
    are what it tunes from what it used before (node/core/guarded.py). What is exchanged is the
    same; a round after one in which it used its own costs a second tuning. None: always merged.
    keep_best: predict and export with the prompts of the best round, not of the last.
    rollback_drop: when validation accuracy falls by more than this below the best (0..1), the next
    round starts from the best prompts instead of the merged ones; 1.0 turns it off.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    merged_rise: float | None = None
    keep_best: bool = False
    rollback_drop: float = 1.0

    def __post_init__(self) -> None:
        if self.merged_rise is not None:
            bounded("guard.merged_rise", self.merged_rise, 0)
        bounded("guard.rollback_drop", self.rollback_drop, 0, 1)

    @property
    def judged_by(self) -> str:
        """Name the setting that needs validation images; "" where none is set."""
        for key, default in (("merged_rise", None), ("keep_best", False), ("rollback_drop", 1.0)):
            if getattr(self, key) != default:
                return f"guard.{key}"
        return ""


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """How contributions are merged (node/core/robust.py).

    rule: "mean", which trusts everyone; or "median", "trimmed", "krum", "center" or "clip", which
    bear with some liars and cost some accuracy where nobody lies and data differ. trim: share (0 to
    0.5) cut off at either end. liars: f of multi-Krum, how many to bear with. radius: of clipping,
    in the prompts' own units; 0 for the median distance of a round.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    rule: Literal["mean", "median", "trimmed", "krum", "center", "clip"] = "mean"
    trim: float = 0.2
    liars: int = 1
    radius: float = 0.0

    def __post_init__(self) -> None:
        bounded("policy.merge.trim", self.trim, 0, 0.5)
        bounded("policy.merge.liars", self.liars, 0)
        bounded("policy.merge.radius", self.radius, 0)


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What one peer may cost, and what becomes of one that sends what no correct node sends.

    norm_ratio: prompts longer (Euclidean norm) than this times those that the node began with, or
    than this itself, are refused, and never adopted from a merge. budget: faults, halved every
    half_life_s, at which a peer is quarantined, for quarantine_s at first and twice as long each
    further time; fewer is stricter.
    messages_s, megabytes_s: of one peer in a second, on average; bursts of ten seconds' worth pass.
    busy_share: of the event loop's time that one peer's messages may take, 0 to 1.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    norm_ratio: float = 1000.0
    budget: float = 5.0
    half_life_s: float = 300.0
    quarantine_s: float = 60.0
    messages_s: float = 100.0
    megabytes_s: float = 64.0
    busy_share: float = 0.25

    def __post_init__(self) -> None:
        bounded("limits.norm_ratio", self.norm_ratio, 1, 1e9)
        bounded("limits.budget", self.budget, 1)
        for key in ("half_life_s", "quarantine_s"):
            positive(f"limits.{key}", getattr(self, key), LONGEST_S)
        positive("limits.messages_s", self.messages_s)
        positive("limits.megabytes_s", self.megabytes_s)
        positive("limits.busy_share", self.busy_share, 1.0)


@dataclass(frozen=True, slots=True)
class Timing:
    """How SWIM's clockwork runs, every figure given; see MembershipSettings."""

    probe_interval_s: float
    probe_timeout_s: float
    suspicion_mult: float
    sync_interval_s: float

    def suspicion_s(self, members: int) -> float:
        """Return how long a suspect of a mesh of so many nodes has to contradict."""
        return self.suspicion_mult * max(1.0, math.log10(max(members, 1))) * self.probe_interval_s


PRESETS: Final[Mapping[str, Timing]] = {
    "local": Timing(0.2, 0.2, 5.0, 10.0),
    "lan": Timing(0.5, 0.4, 4.0, 30.0),
    "wan": Timing(2.0, 1.5, 6.0, 60.0),
}


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """How members are watched (SWIM; node/core/swim.py).

    preset: "local", "lan" or "wan"; the figures below replace its own where they are given.
    probe_interval_s: one member is probed each interval; shorter notices a death sooner, and costs
    each node two small messages. probe_timeout_s: for the answer, before others are asked to try.
    suspicion_mult: a suspect counts as dead after suspicion_mult * max(1, log10(nodes)) *
    probe_interval_s without a sign of life; less is quicker, more forgives slow machines. A death
    is noticed within about probe_interval_s + 3.5 * probe_timeout_s + that time. sync_interval_s:
    between comparisons of whole member lists with somebody; shorter mends what gossip missed.
    indirect: members asked to try in one's place; more survives bad links, costs messages.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    preset: Literal["local", "lan", "wan"] = "lan"
    probe_interval_s: float | None = None
    probe_timeout_s: float | None = None
    suspicion_mult: float | None = None
    sync_interval_s: float | None = None
    indirect: int = 3

    def __post_init__(self) -> None:
        for one in fields(Timing):
            given = getattr(self, one.name)
            if given is not None:
                positive(f"membership.{one.name}", given, LONGEST_S)
        bounded("membership.indirect", self.indirect, 0, 16)

    @property
    def timing(self) -> Timing:
        """Return the preset's figures with those that were given in their place."""
        given = {one.name: getattr(self, one.name) for one in fields(Timing)}
        own = {name: value for name, value in given.items() if value is not None}
        return replace(PRESETS[self.preset], **own)


@dataclass(frozen=True, slots=True)
class TopologySettings:
    """Who exchanges prompts with whom; all nodes agree on it (node/core/topology.py).

    kind: full; ring; k-regular, a random graph where each has `degree` neighbours; small-world, a
    ring lattice of `degree` neighbours with a share `rewire` (0..1) of its edges led elsewhere;
    star around `hub`; or edges, as listed. Fewer edges cost fewer messages and spread slower.
    seed: of random graphs.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    kind: Literal["full", "ring", "k-regular", "small-world", "star", "edges"] = "full"
    degree: int = 4
    rewire: float = 0.1
    hub: str | None = None
    edges: tuple[tuple[str, str], ...] = ()
    seed: int = 1

    def __post_init__(self) -> None:
        bounded("topology.degree", self.degree, 1)
        bounded("topology.rewire", self.rewire, 0, 1)
        if self.edges and self.kind != "edges":
            raise ValueError(f"topology.edges are given, but topology.kind is {self.kind!r}.")
        if self.kind == "edges" and not self.edges:
            raise ValueError("topology.kind is 'edges', but topology.edges lists none.")
        if self.kind == "small-world" and self.degree % 2:
            raise ValueError(f"topology.degree is {self.degree}; a small world's is even.")
