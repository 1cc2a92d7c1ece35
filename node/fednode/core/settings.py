"""Settings of the pure core. The text below a field explains the field (tools/settings).

`__pydantic_config__` makes pydantic refuse unknown keys; the core itself does not import pydantic.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

Barrier = Literal["async", "sync"]
Initial = Literal["common", "own"]
"""Whether all nodes begin from the same prompts, or each node draws its own."""
STRICT = {"extra": "forbid"}
LONGEST_S = 1e7
"""Upper limit of every time in settings, some four months; a longer time is a typing error."""


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
    """When round one starts."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    peers: int | None = None
    """Round one starts as soon as this many peers answer. null: all listed peers, however many; in
    a mesh with a mesh_key, one peer; if all addresses are of this machine, at most eight."""
    timeout_s: float | None = None
    """Round one starts after this time at the latest, however many peers answer. null: if a listed
    peer's address is not of this machine, the node waits without end; otherwise it waits 120
    seconds, and longer while a peer is refused. `fednode start --alone` waits for nobody."""

    def __post_init__(self) -> None:
        bounded("rounds.start.peers", self.peers or 0, 0)
        bounded("rounds.start.timeout_s", self.timeout_s or 0, 0, LONGEST_S)


@dataclass(frozen=True, slots=True)
class RoundSettings:
    """When rounds begin and end, and how many rounds there are."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    mode: Barrier | None = None
    """When a round stops waiting for contributions. async: at once (ZeroDFL and local alone). sync:
    when all live peers contributed. null: the policy's own mode."""
    max: int = 100
    """Number of rounds; 0: no end. After the last round a node still serves its prompts and its
    peers. If the nodes of the policy share one state, all nodes need the same number. For more
    rounds, start all nodes again with a larger number (not with DiPrompT's averages)."""
    deadline_s: float = 60.0
    """Longest wait for others in each stage of a round. A longer wait includes stragglers; a
    shorter wait leaves them out."""
    min_interval_s: float = 0.0
    """Least time between the starts of two rounds."""
    lead: int | None = 5
    """Only in async mode: if a live peer has lost more than this number of rounds on a node, the
    node waits before its next round, so that slow peers are heard. It waits at most three times as
    long as its last round took. Rounds that a peer missed before it started do not count. null: it
    never waits."""
    start: StartSettings = field(default_factory=StartSettings)

    def __post_init__(self) -> None:
        bounded("rounds.max", self.max, 0)
        positive("rounds.deadline_s", self.deadline_s, LONGEST_S)
        bounded("rounds.min_interval_s", self.min_interval_s, 0, LONGEST_S)
        bounded("rounds.lead", self.lead or 0, 0)


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """Guard against merges that make the node worse, judged by its own validation images."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    merged_rise: float | None = None
    """Largest accepted rise of the validation loss, in nats, from the node's personal prompts to
    the merged prompts. If the loss rises by more, the node predicts and exports with its personal
    prompts, and its next round costs a second tuning. What the node sends stays the same.
    Mesh-wide rounds only. null: the merged prompts are always used."""
    keep_best: bool = False
    """true: predict and export with the prompts of the round with the best validation accuracy,
    not with those of the last round."""

    def __post_init__(self) -> None:
        if self.merged_rise is not None:
            bounded("guard.merged_rise", self.merged_rise, 0)

    @property
    def judged_by(self) -> str:
        """Return the name of a setting that needs validation images; "" if none is set."""
        if self.merged_rise is not None:
            return "guard.merged_rise"
        return "guard.keep_best" if self.keep_best else ""


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """How contributions are merged (docs/results.md, "Hostile nodes", compares the rules)."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    rule: Literal["mean", "median", "trimmed", "krum", "center", "clip"] = "mean"
    """mean trusts every node. The other rules tolerate some dishonest nodes; if all nodes are
    honest and their data differ, they cost some accuracy."""
    trim: float = 0.2
    """Only for trimmed: the share (0 to 0.5) of values that is cut off at either end."""
    liars: int = 1
    """Only for krum: f of multi-Krum, the number of dishonest nodes to tolerate."""

    def __post_init__(self) -> None:
        bounded("policy.merge.trim", self.trim, 0, 0.5)
        bounded("policy.merge.liars", self.liars, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """Limits on what one peer may send."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    messages_s: float = 100.0
    """Messages a second that one peer may send on average; bursts of ten seconds' worth pass."""
    megabytes_s: float = 64.0
    """Megabytes a second that one peer may send on average; bursts of ten seconds' worth pass."""

    def __post_init__(self) -> None:
        positive("limits.messages_s", self.messages_s)
        positive("limits.megabytes_s", self.megabytes_s)


@dataclass(frozen=True, slots=True)
class Timing:
    """The time limits of SWIM.

    probe_interval_s: time between two probes, each of one member. A shorter time notices a death
    sooner; each probe costs two small messages.
    probe_timeout_s: longest wait for the answer to a probe. After that, other members are asked to
    probe.
    suspicion_mult: see `suspicion_s`. A lower value is quicker; a higher value tolerates slow
    machines and bad links.
    sync_interval_s: time between two comparisons of the member list with a random live member. A
    shorter time repairs sooner what gossip missed; equal lists cost one short message.
    """

    probe_interval_s: float
    probe_timeout_s: float
    suspicion_mult: float
    sync_interval_s: float

    def suspicion_s(self, members: int) -> float:
        """Return how many seconds a suspect has to contradict, in a mesh of `members` nodes."""
        return self.suspicion_mult * _spread(members) * self.probe_interval_s


@functools.lru_cache(maxsize=8)
def _spread(members: int) -> float:
    """Return how much longer news take in a mesh of so many nodes; each message asks for it."""
    return max(1.0, math.log10(max(members, 1)))


PRESETS: Final[Mapping[str, Timing]] = {
    "local": Timing(0.2, 0.2, 5.0, 10.0),
    "lan": Timing(0.5, 0.4, 4.0, 30.0),
    "wan": Timing(2.0, 1.5, 6.0, 60.0),
}
LAN: Final = PRESETS["lan"]


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """How the members of the mesh are watched (SWIM; docs/membership.md)."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    preset: Literal["local", "lan", "wan"] = "lan"
    """local (one machine), lan or wan: the time limits of docs/membership.md. wan tolerates slow
    machines and bad links, and notices a death later."""

    @property
    def timing(self) -> Timing:
        return PRESETS[self.preset]


@dataclass(frozen=True, slots=True)
class TopologySettings:
    """Which nodes exchange prompts. Every node still watches every other node."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    kind: Literal["full", "ring", "k-regular"] = "full"
    """The graph: full (all pairs), ring, or k-regular (random). Fewer edges cost fewer messages and
    spread prompts more slowly. Policies whose nodes wait for each other take only full."""
    degree: int = 4
    """Only for k-regular: the number of neighbours of each node."""

    def __post_init__(self) -> None:
        bounded("topology.degree", self.degree, 1)
