"""Simulated meshes of every policy with the closed-form learner, of small arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fednode.core.policy import PolicyKind
from fednode.core.settings import LAN, RoundSettings, StartSettings, Timing
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.learn.quadratic import QuadraticLearner, QuadraticSums
from fednode.policies import plan as aggregator
from fednode.policies.diprompt import DiPrompT, DiPrompTConfig
from fednode.policies.feddpt import FedDPT, FedDPTConfig
from fednode.policies.gda import GDA, GDAConfig
from fednode.policies.plan import Plan, PlanConfig
from fednode.policies.promptfl import PromptFLConfig
from tests.unit.policies.methods import PROMPTFL

NAMES = ("a", "b", "c", "d")
DOMAINS = ("art", "photo")
LIMIT_S = 3600.0
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Kind:
    policy: PolicyKind
    config: Any
    shapes: Shapes
    sums: bool = False


def promptfl(**set_: Any) -> Kind:
    return Kind(PROMPTFL, PromptFLConfig(**set_), {"context": (4, 3)})


def feddpt(**set_: Any) -> Kind:
    config = FedDPTConfig(domains=DOMAINS, **set_)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(config.text_names, (3, 2))
    shapes.update(dict.fromkeys(config.visual_names, (4,)))
    return Kind(FedDPT, config, shapes)


def diprompt(**set_: Any) -> Kind:
    config = DiPrompTConfig(domains=DOMAINS, **set_)
    return Kind(DiPrompT, config, dict.fromkeys(config.names, (4, 2)))


def plan(**set_: Any) -> Kind:
    config = PlanConfig(reduction=2, **set_)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, prompts in {"text": (2, 3, 4), "visual": (3, 3, 4)}.items():
        shapes[name] = prompts
        if name in config.aggregated:
            shapes |= aggregator.aggregator_shapes(name, prompts, config.reduction, config.tied)
    return Kind(Plan, config, shapes)


KINDS = {
    "promptfl": promptfl(),
    "promptfl-int8": promptfl(wire_dtype="int8"),
    "feddpt": feddpt(),
    "feddpt-split": feddpt(visual="split", text="replace"),
    "diprompt": diprompt(),
    "diprompt-some": diprompt(participants=2),
    "promptfl-some": promptfl(participants=2),
    "feddpt-some": feddpt(participants=1),
    "plan": plan(),
    "plan-some": plan(participants=2),
    "gda": Kind(GDA, GDAConfig(), {}, sums=True),
    "plan-float16": plan(aggregator_dtype="float16", wire_dtype="float16"),
}


def mesh(
    kind: Kind,
    seed: int = 1,
    most: int = 6,
    loss: float = 0.0,
    names: Sequence[str] = NAMES,
    deadline_s: float = 60.0,
    probes: Timing = LAN,
    samples: Sequence[int] = range(10, 1000, 10),
    **world: Any,
) -> World:
    """Return a mesh that has been switched on; domains alternate, images differ."""
    made = World(seed, loss=loss, **world)
    start = StartSettings(peers=len(names) - 1)
    rounds = RoundSettings("sync", max=most, start=start, deadline_s=deadline_s)
    domains = {name: DOMAINS[at % 2] for at, name in enumerate(names)}
    shared = Setup(
        policy=kind.policy,
        config=kind.config,
        rounds=rounds,
        seed=1,
        membership=probes,
        domains=domains,
    )
    learners = {
        name: QuadraticSums(name)
        if kind.sums
        else QuadraticLearner(name, samples=count, shapes=kind.shapes)
        for name, count in zip(names, samples, strict=False)
    }
    made.populate(shared, learners)
    return made


def run(world: World) -> World:
    assert world.run(world.finished, LIMIT_S), "the mesh does not come to an end"
    return world


def digests(world: World) -> dict[str, str]:
    """Return what each node holds of all: its shared state, or the statements of all nodes."""
    held = {
        name: (host.durable.policy, host.kernel)
        for name, host in world.hosts.items()
        if host.durable is not None
    }
    return {
        name: (
            state.tensors if kernel is None or kernel.policy.shared_state else state.arrays
        ).digest
        for name, (state, kernel) in held.items()
    }


def texts(world: World, kind: str) -> list[str]:
    return [one.text for host in world.hosts.values() for one in host.records if one.kind == kind]
