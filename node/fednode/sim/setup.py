"""The settings that all nodes of a simulated mesh share, and how they become a node's kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
from fednode.core.types import Snapshot, Tensors
from fednode.learn.learner import Learner
from fednode.sim.host import Build


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The settings that all nodes of a simulated mesh share.

    domains: the domain of each node that has a domain. start: "common" if all nodes begin from the
    same prompts, "own" if each node draws its own.
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
            samples=learner.samples,
            domain=self.domains.get(name, ""),
            topology=self.topology,
            guard=self.guard,
            start=self.start,
        )

        def make(held: Snapshot | None) -> Kernel:
            return kernel_of(
                context,
                self.policy,
                self.config,
                learner.initial,
                facts,
                held,
                self.membership,
                self.tolerance,
            )

        return make
