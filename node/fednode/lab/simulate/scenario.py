"""Draw a run full of faults from a seed, play it and judge it.

A scenario says what may happen. A seed draws a case: a mesh, its hostile nodes, and its faults. All
faults end after `fault_s`. Within `heal_s` after that, honest nodes must have run all their rounds,
see each other as alive, and report whose prompts differ. node/fednode/lab/simulate/checkers.py
judges each step.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from fednode import registry
from fednode.core.reputation import Tolerance
from fednode.core.settings import (
    STRICT,
    Barrier,
    GuardSettings,
    RoundSettings,
    StartSettings,
    bounded,
    positive,
)
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.lab.simulate import ends
from fednode.lab.simulate.byzantine import (
    COLLUDE,
    COLLUDE_SHARE,
    COLLUDING_MIN,
    FLIPPED,
    KINDS,
    Flipped,
    Hostile,
    Plot,
)
from fednode.lab.simulate.checkers import ALL, Violation, decide, unsaid
from fednode.lab.simulate.faults import Fault, schedule, switch_on
from fednode.learn.learner import Learner
from fednode.learn.quadratic import QuadraticLearner

TUNE_S: Final = 0.3
LOOK_S: Final = 0.5
TOLD_S: Final = 120.0
"""Time limit for nodes to report that their prompts differ."""
COLLUDING_NODES: Final = 5
HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class MeshKind:
    """A policy with its settings, and the array shapes for the closed-form learner.

    modes: a seed draws one of them as rounds.mode. agrees: after the last round of `sync` without
    hostile nodes, all nodes hold equal bits. guard: as in node.yaml.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    policy: dict[str, Any]
    shapes: dict[str, tuple[int, ...]] | None = None
    modes: tuple[Barrier, ...] = ("sync",)
    domains: tuple[str, ...] = ()
    agrees: bool = False
    guard: GuardSettings = field(default_factory=GuardSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSettings:
    """The most that a seed may draw of each fault; 0 means never.

    loss, duplicates: shares (0..1) of frames. delay_s: of a frame. How many: crashes, wipes
    (crashes that lose the disk), cuts (some nodes from the rest), one_way and clogs (of a link),
    full_disks, pauses (by the operator), backups (that are restored). slow_disk_s: of a commit.
    skew_s: of clocks.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    loss: float = 0.2
    duplicates: float = 0.2
    delay_s: float = 0.3
    crashes: int = 3
    wipes: int = 1
    cuts: int = 2
    one_way: int = 3
    clogs: int = 3
    full_disks: int = 2
    pauses: int = 1
    backups: int = 0
    slow_disk_s: float = 0.5
    skew_s: float = HOUR_S

    def __post_init__(self) -> None:
        bounded("faults.loss", self.loss, 0, 0.9)
        bounded("faults.duplicates", self.duplicates, 0, 1)
        for key in ("delay_s", "slow_disk_s", "skew_s"):
            bounded(f"faults.{key}", getattr(self, key), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What may happen in a run.

    nodes: fewest and most. rounds: of each node. fault_s: virtual seconds with faults. heal_s:
    limit for recovery. liars: kinds of hostile nodes (node/fednode/lab/simulate/byzantine.py,
    "label-flip"). A seed draws at most liar_share (0..1) of the nodes, or exactly liar_count. If it
    draws "collude" (a tenth of the seeds, or all if there is no other kind), all liars collude,
    there are at least five nodes, and at least two of them lie unless liar_count says otherwise.
    private: whether privacy is on at all nodes. agrees: False takes back what the meshes say of it.
    In a file, meshes may also be the name of another file beside it, whose meshes are taken.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    meshes: tuple[MeshKind, ...]
    nodes: tuple[int, int] = (3, 6)
    rounds: int = 20
    fault_s: float = 6.0
    heal_s: float = 600.0
    deadline_s: float = 30.0
    liars: tuple[str, ...] = ()
    liar_share: float = 0.34
    liar_count: int | None = None
    private: bool = False
    agrees: bool = True
    faults: FaultSettings = field(default_factory=FaultSettings)

    def __post_init__(self) -> None:
        bounded("nodes", self.nodes[0], 1)
        bounded("nodes", self.nodes[1], self.nodes[0], 26)
        bounded("rounds", self.rounds, 1)
        bounded("liar_share", self.liar_share, 0, 1)
        if self.liar_count is not None:
            bounded("liar_count", self.liar_count, 0, self.nodes[0])
        if COLLUDE in self.liars and self.nodes[1] < COLLUDING_NODES:
            text = f"two of them are fewer than half of {COLLUDING_NODES} nodes or more"
            raise ValueError(f"nodes is {list(self.nodes)} and liars names {COLLUDE!r}; {text}.")
        for key in ("fault_s", "heal_s", "deadline_s"):
            positive(key, getattr(self, key))
        for kind in self.liars:
            if kind not in KINDS and kind != FLIPPED:
                raise ValueError(f"liars names {kind!r}; there are {', '.join([*KINDS, FLIPPED])}.")
        if not self.meshes:
            raise ValueError("meshes lists none.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioCase:
    """One run, drawn from a seed; liars: kind of each hostile node, by name."""

    seed: int
    mesh: MeshKind
    config: Any
    mode: Barrier
    names: tuple[str, ...]
    faults: tuple[Fault, ...]
    liars: Mapping[str, str]
    loss: float
    duplicates: float
    delay_s: float
    slow_disk_s: float
    skew_s: float

    @property
    def honest(self) -> list[str]:
        return [name for name in self.names if name not in self.liars]

    @property
    def agrees(self) -> bool:
        return self.mesh.agrees and self.mode == "sync" and not self.liars

    def lines(self) -> list[str]:
        """Describe the case for people: one line for the mesh, then one per fault."""
        network = (
            f"loss {self.loss:.2f}, duplicates {self.duplicates:.2f}, delays {self.delay_s:.2f} s"
        )
        lies = ", ".join(f"{name} {kind}" for name, kind in self.liars.items()) or "nobody lies"
        machines = f"commits {self.slow_disk_s:.2f} s, clocks {self.skew_s:.0f} s apart"
        mesh = f"{self.mesh.policy['name']} {self.mode}, {len(self.names)} nodes"
        return [f"{mesh}; {lies}; {network}; {machines}", *map(str, self.faults)]


@dataclass(frozen=True, slots=True)
class CaseEnd:
    """How a case ended: events, virtual seconds, a digest of all nodes, and the violation."""

    case: ScenarioCase
    events: int
    seconds: float
    ends: str
    violation: Violation | None = None


def draw(scenario: Scenario, configs: Sequence[Any], seed: int) -> ScenarioCase:
    """Return the case of a seed; configs: the policy configuration of each mesh of the scenario."""
    chance, faults = random.Random(seed), scenario.faults
    which = chance.randrange(len(scenario.meshes))
    mesh = scenario.meshes[which]
    names, liars = _members(scenario, chance)
    calm = chance.random() < 0.2  # some runs have a good network

    def share(value: float) -> float:
        return 0.0 if calm else chance.uniform(0, value)

    return ScenarioCase(
        seed=seed,
        mesh=mesh,
        config=configs[which],
        mode=chance.choice(mesh.modes),
        names=names,
        faults=tuple(sorted(_faults(scenario, names, chance), key=lambda fault: fault.at)),
        liars=liars,
        loss=share(faults.loss),
        duplicates=share(faults.duplicates),
        delay_s=0.02 + share(faults.delay_s),
        slow_disk_s=chance.choice([0.0, chance.uniform(0, faults.slow_disk_s)]),
        skew_s=chance.choice([0.0, faults.skew_s]),
    )


def _members(scenario: Scenario, chance: random.Random) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the names of a seed's nodes, and the kind of each hostile node."""
    kinds = [kind for kind in scenario.liars if kind != COLLUDE]
    rare = COLLUDE in scenario.liars and chance.random() < COLLUDE_SHARE
    colluding = rare or scenario.liars == (COLLUDE,)
    least, most = scenario.nodes
    least = max(least, COLLUDING_NODES) if colluding else least
    names = tuple("abcdefghijklmnopqrstuvwxyz"[: chance.randint(least, most)])
    count = chance.randint(0, int(scenario.liar_share * len(names)) if scenario.liars else 0)
    count = max(count, COLLUDING_MIN) if colluding else count
    count = count if scenario.liar_count is None else scenario.liar_count
    lying = sorted(chance.sample(names, count))
    return names, {name: COLLUDE if colluding else chance.choice(kinds) for name in lying}


def _faults(scenario: Scenario, names: tuple[str, ...], chance: random.Random) -> list[Fault]:
    faults, end = scenario.faults, scenario.fault_s
    counts = {
        "crash": (faults.crashes, 1),
        "wipe": (faults.wipes, 1),
        "cut": (faults.cuts, max(1, len(names) // 2)),
        "one-way": (faults.one_way, 2),
        "clog": (faults.clogs, 2),
        "fill": (faults.full_disks, 1),
        "pause": (faults.pauses, 1),
        **({"backup": (faults.backups, 1)} if faults.backups else {}),  # 0 draws no number
    }
    drawn = []
    for kind, (most, whom) in counts.items():
        for _ in range(chance.randint(0, most)):
            if whom <= len(names):
                at = chance.uniform(0, end)
                chosen = tuple(chance.sample(names, whom))
                drawn.append(Fault(at, kind, chosen, chance.uniform(0.05, max(0.1, end - at))))
    return drawn


def play(scenario: Scenario, case: ScenarioCase) -> CaseEnd:
    """Run a case until it ends or breaks a promise."""
    world, honest = _world(scenario, case), case.honest
    broken: Violation | None = None
    try:
        for name in case.names:
            switch_on(world, name)
        world.run(lambda: False, scenario.fault_s)
        _heal(world, case)
        until = world.now + scenario.heal_s
        while not ends.well(world, honest):
            decide(world)
            if world.now >= until:
                raise Violation("AllEndsWell", ends.unwell(world, honest))
            world.run(lambda: False, LOOK_S)
        if case.agrees and scenario.agrees:
            ends.agreed(world)
        world.run(lambda: not unsaid(world, honest), TOLD_S)
        if text := unsaid(world, honest):
            raise Violation("NobodyDiffersUnsaid", text)
    except Violation as violation:
        broken = violation
    return CaseEnd(case, world.events, world.now, ends.digest(world), broken)


def _world(scenario: Scenario, case: ScenarioCase) -> World:
    world = World(case.seed, (0.001, case.delay_s), case.loss, memorable=False)
    kind = registry.policy(str(case.mesh.policy["name"]))
    others = len(case.names) - 1
    start = StartSettings(peers=others, timeout_s=5.0)
    rounds = RoundSettings(
        mode=case.mode,
        max=scenario.rounds,
        deadline_s=scenario.deadline_s,
        start=start,
    )
    plan = Setup(
        policy=kind,
        config=case.config,
        rounds=rounds,
        seed=1,
        guard=case.mesh.guard,
        domains=_domains(case),
        private=scenario.private,
        tolerance=Tolerance(norm_ratio=1e7, quarantine_s=20.0),  # closed-form prompts may grow
    )
    world.network.duplicates = case.duplicates
    world.checkers = [made(liars=tuple(case.liars)) for made in ALL]
    learners = {name: _learner(case, name) for name in case.names}
    world.place(plan, learners, TUNE_S)
    chance, plot = random.Random(case.seed), Plot.drawn(random.Random(case.seed))
    for name, host in world.hosts.items():
        host.disk_s = chance.uniform(0, case.slow_disk_s)
        host.clock_s = chance.choice([0.0, 1.0, -0.5]) * case.skew_s + HOUR_S
        lie = case.liars.get(name, FLIPPED)
        if lie in KINDS:
            first = learners[name].initial(1)
            host.liar = KINDS[lie](Hostile(case.names, chance, first, plot))
    for fault in case.faults:
        schedule(world, fault)
    return world


def _learner(case: ScenarioCase, name: str) -> Learner:
    made: Learner = QuadraticLearner(name, shapes=case.mesh.shapes)
    return Flipped(made) if case.liars.get(name) == FLIPPED else made  # type: ignore[return-value]


def _domains(case: ScenarioCase) -> dict[str, str]:
    among = case.mesh.domains
    return {name: among[at % len(among)] for at, name in enumerate(case.names) if among}


def _heal(world: World, case: ScenarioCase) -> None:
    """End all faults but slow disks, skewed clocks and hostile nodes, before their set time."""
    for arrive in world.network.heal():
        world.at(0.0, arrive)
    world.network.delay_s = (0.001, 0.02)
    for name in case.names:
        world.hosts[name].full = False
        switch_on(world, name)
        world.command(name, "resume")


def shrink(scenario: Scenario, failed: CaseEnd, tries: int = 200) -> CaseEnd:
    """Drop faults in turn; return the smallest case found that breaks the same promise."""
    assert failed.violation is not None, "it failed"
    least = failed
    for _ in range(tries):
        smaller = next(
            (
                end
                for case in _simpler(least.case)
                for end in [play(scenario, case)]
                if end.violation and end.violation.checker == failed.violation.checker
            ),
            None,
        )
        if smaller is None:
            return least
        least = smaller
    return least


def _simpler(case: ScenarioCase) -> list[ScenarioCase]:
    """Return the cases that have one fault or hostile node less."""
    simpler = [
        replace(case, faults=case.faults[:at] + case.faults[at + 1 :])
        for at in range(len(case.faults))
    ]
    for name in case.liars:
        honest = {liar_name: lie for liar_name, lie in case.liars.items() if liar_name != name}
        simpler.append(replace(case, liars=honest))
    calmer = [
        replace(case, loss=0.0),
        replace(case, duplicates=0.0),
        replace(case, slow_disk_s=0.0),
        replace(case, skew_s=0.0),
    ]
    return [*simpler, *(calm for calm in calmer if calm != case)]
