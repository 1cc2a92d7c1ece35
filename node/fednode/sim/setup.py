"""The settings that all nodes of a simulated mesh share, and how they become a node's kernel."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fednode.core.assemble import beginning_of, kernel_of, parts_of
from fednode.core.documents import Documents
from fednode.core.kernel import Kernel
from fednode.core.policy import NodeContext, PolicyKind, start_seed
from fednode.core.reputation import Tolerance
from fednode.core.run import Parts
from fednode.core.settings import (
    LAN,
    GuardSettings,
    Initial,
    RoundSettings,
    Timing,
    TopologySettings,
)
from fednode.core.types import Past, PolicyState, Snapshot, Tensors
from fednode.learn.learner import Learner, told
from fednode.sim.host import Build, signature


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The settings that all nodes of a simulated mesh share.

    domains: the domain of each node that has a domain. start: "common" if all nodes begin from the
    same prompts, "own" if each node draws its own. private: privacy is on at all nodes. amended:
    the settings under each settings document, by its digest. counted: the nodes must agree on how
    many rounds there are. shown: the id and the lease of each node, in a mesh that grows by leases.
    places: the address of each node, in a mesh where addresses change. remote: listed peers are on
    other machines.
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
    amended: dict[str, Setup] = field(default_factory=dict)
    counted: bool = False
    shown: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    remote: bool = False

    def first(self, name: str, learner: Learner) -> Tensors:
        """Return a node's initial prompts."""
        return learner.initial(start_seed(self.start, self.seed, name))

    def build(self, name: str, peers: tuple[str, ...], learner: Learner) -> Build:
        """Return what makes a node's kernel at each of its starts."""
        return _Builder(self, name, peers, learner)

    def facts(self) -> dict[str, str]:
        """Return the settings that the nodes must agree on."""
        facts = {"policy.name": self.policy.name, "policy": str(self.config)}
        return {**facts, "rounds.max": str(self.rounds.max)} if self.counted else facts

    def context(self, name: str, peers: tuple[str, ...], learner: Learner) -> NodeContext:
        """Return what a policy may know of a node."""
        return NodeContext(
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
            address=self.places.get(name, name if self.shown else ""),
            id=self.shown.get(name, ("", b""))[0],
            proof=self.shown.get(name, ("", b""))[1],
            introduced=bool(self.shown),
            remote=self.remote,
        )


class _Builder:
    """Makes one node's kernel, and its parts under other settings documents."""

    def __init__(self, setup: Setup, name: str, peers: tuple[str, ...], learner: Learner) -> None:
        self._setup, self._name, self._peers, self._learner = setup, name, peers, learner
        self._starts, self._process, self._force = itertools.count(1), "", ""

    def __call__(
        self,
        held: Snapshot | None,
        past: Past | None = None,
        documents: Documents | None = None,
    ) -> Kernel:
        """Return a kernel; parameters as in Build."""
        self._process = f"{next(self._starts):x}"
        self._force = documents.force.digest if documents else ""
        setup = self._under(self._force)
        return kernel_of(
            self._context(setup),
            setup.policy,
            setup.config,
            self._learner.initial,
            setup.facts(),
            held,
            setup.membership,
            setup.tolerance,
            past=past,
            prove=lambda mark: signature(self._name, mark),
            documents=documents,
            under=self._parts,
        )

    def lists(self, peers: tuple[str, ...]) -> None:
        """Let the kernels from the next start on know these peers."""
        self._peers = peers

    def begins(self, before: str, after: str) -> bool:
        """Tell whether the rounds begin anew between two documents."""
        old, new = self._under(before), self._under(after)
        return (old.policy, old.config, old.seed) != (new.policy, new.config, new.seed)

    def beginning(self, held: Snapshot, digest: str) -> Snapshot:
        """Return the beginning of a run under a document; parameters as in Build."""
        return beginning_of(held, self._made(digest, held.policy, begins=True))

    def _parts(self, digest: str, state: PolicyState) -> Parts:
        parts = self._made(digest, state, begins=self.begins(self._force, digest))
        self._force = digest
        return parts

    def _made(self, digest: str, state: PolicyState, begins: bool) -> Parts:
        setup, initial = self._under(digest), self._learner.initial
        kind, config, facts = setup.policy, setup.config, setup.facts()
        context, tolerance = self._context(setup), setup.tolerance
        return parts_of(context, kind, config, initial, facts, state, tolerance, begins=begins)

    def _under(self, digest: str) -> Setup:
        return self._setup.amended[digest] if digest else self._setup

    def _context(self, setup: Setup) -> NodeContext:
        frame = setup.context(self._name, self._peers, self._learner)
        return replace(frame, process=self._process)
