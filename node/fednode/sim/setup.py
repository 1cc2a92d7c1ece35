"""The settings that all nodes of a simulated mesh share, and how they become a node's kernel."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fednode.core.assemble import kernel_of
from fednode.core.kernel import Kernel
from fednode.core.policy import NodeContext, PolicyKind, start_seed
from fednode.core.reputation import Tolerance
from fednode.core.settings import (
    LAN,
    GuardSettings,
    Initial,
    RoundSettings,
    Timing,
    TopologySettings,
)
from fednode.core.types import Past, Snapshot, Tensors
from fednode.learn.learner import Learner, told
from fednode.sim.host import Build, signature


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The settings that all nodes of a simulated mesh share.

    domains: the domain of each node that has a domain. start: "common" if all nodes begin from the
    same prompts, "own" if each node draws its own. private: privacy is on at all nodes.
    """

    policy: PolicyKind
    config: Any
    rounds: RoundSettings = field(default_factory=RoundSettings)
    seed: int = 1
    membership: Timing = LAN
    guard: GuardSettings = field(default_factory=GuardSettings)
    domains: Mapping[str, str] = field(default_factory=dict)
    topology: TopologySettings = field(default_factory=TopologySettings)
    tolerance: Tolerance = field(default_factory=Tolerance)
    start: Initial = "common"
    private: bool = False

    def first(self, name: str, learner: Learner) -> Tensors:
        """Return a node's initial prompts."""
        return learner.initial(start_seed(self.start, self.seed, name))

    def build(self, name: str, peers: tuple[str, ...], learner: Learner) -> Build:
        """Return the function that makes a node's kernel at each of its starts."""
        facts = {"policy.name": self.policy.name, "policy": str(self.config)}
        context = NodeContext(
            name=name,
            peers=peers,
            mesh="simulated",
            seed=self.seed,
            rounds=self.rounds,
            samples=told(learner)[1],
            domain=self.domains.get(name, ""),
            topology=self.topology,
            guard=self.guard,
            start=self.start,
            private=self.private,
        )

        starts = itertools.count(1)

        def make(held: Snapshot | None, past: Past | None = None) -> Kernel:
            return kernel_of(
                replace(context, process=f"{next(starts):x}"),
                self.policy,
                self.config,
                learner.initial,
                facts,
                held,
                self.membership,
                self.tolerance,
                past=past,
                prove=lambda mark: signature(name, mark),
            )

        return make
