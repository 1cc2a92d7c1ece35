"""The settings that all nodes of a simulated mesh share, and how they become a node's kernel."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fednode.core.kernel import Kernel, kernel_of
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
from fednode.core.types import Account, Snapshot, Tensors
from fednode.lab.sim.host import Build
from fednode.learn.learner import Learner


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
        return learner.initial(start_seed(self.start, self.seed, name))

    def build(self, name: str, peers: tuple[str, ...], learner: Learner) -> Build:
        starts = itertools.count(1)

        def build(held: Snapshot | None, account: Account | None = None) -> Kernel:
            return kernel_of(
                replace(self.context(name, peers, learner), boot=f"{next(starts):08x}"),
                self.policy,
                self.config,
                learner.initial,
                self.facts(),
                held,
                self.membership,
                self.tolerance,
                account=account,
            )

        return build

    def facts(self) -> dict[str, str]:
        return {"policy.name": self.policy.name, "policy": str(self.config)}

    def context(self, name: str, peers: tuple[str, ...], learner: Learner) -> NodeContext:
        return NodeContext(
            name=name,
            peers=peers,
            mesh="simulated",
            seed=self.seed,
            rounds=self.rounds,
            samples=learner.announced[1],
            domain=self.domains.get(name, ""),
            topology=self.topology,
            guard=self.guard,
            start=self.start,
            private=self.private,
        )
