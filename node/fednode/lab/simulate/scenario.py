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
    RoundSettings,
    StartSettings,
    bounded,
    positive,
)
from fednode.lab.simulate import ends, judge
from fednode.lab.simulate.allowed import HOUR_S, FaultSettings, MeshKind
from fednode.lab.simulate.byzantine import (
    COLLUDE,
    COLLUDE_SHARE,
    COLLUDING_MIN,
    FLIPPED,
    KINDS,
    Plot,
    liar,
)
from fednode.lab.simulate.check import Violation
from fednode.lab.simulate.checkers import ALL
from fednode.lab.simulate.documents import (
    DocumentSettings,
    DrawnDocument,
    draw_documents,
    place_documents,
)
from fednode.lab.simulate.faults import Fault, schedule, switch_on
from fednode.lab.simulate.flipped import Flipped
from fednode.lab.simulate.listing import (
    DrawnListing,
    GoneStayOut,
    ListingSettings,
    draw_listing,
    place_listing,
)
from fednode.lab.simulate.lives import decide, unfound
from fednode.lab.simulate.newcomers import (
    SPONSOR_LIES,
    DrawnNewcomers,
    Growth,
    NewcomerSettings,
    draw_newcomers,
)
from fednode.lab.simulate.parts import Parts
from fednode.lab.simulate.relays import DrawnRelays, RelaySettings, draw_relays, place_relays
from fednode.lab.simulate.speech import unsaid
from fednode.learn.closed_form import ClosedFormLearner
from fednode.learn.learner import Learner
from fednode.sim.setup import Setup
from fednode.sim.world import World

TUNE_S: Final = 0.3
LOOK_S: Final = 0.5
TOLD_S: Final = 120.0
"""Time limit for nodes to report that their prompts differ."""
COLLUDING_NODES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What may happen in a run.

    nodes: fewest and most. rounds: of each node. fault_s: virtual seconds with faults. heal_s:
    limit for recovery. liars: kinds of hostile nodes (node/fednode/lab/simulate/byzantine.py,
    "label-flip"). A seed draws at most liar_share (0..1) of the nodes, or exactly liar_count. If it
    draws "collude" (a tenth of the seeds, or all if there is no other kind), all liars collude,
    there are at least five nodes, and at least two of them lie unless liar_count says otherwise.
    redo: rounds.redo of all nodes; a seed then also cuts some nodes off from everybody until
    `fault_s`. Nodes that both want to begin their rounds again must do so; groups that merged apart
    need not agree.
    private: whether privacy is on at all nodes. relays: None if all nodes can dial each other.
    documents: None if the mesh's settings stay as they are; else the policies of `meshes` take the
    same arrays.
    newcomers: None if nobody joins later. listing: None if no peers.yaml changes.
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
    redo: bool = False
    private: bool = False
    relays: RelaySettings | None = None
    documents: DocumentSettings | None = None
    newcomers: NewcomerSettings | None = None
    listing: ListingSettings | None = None
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
        if self.listing is not None and (self.newcomers or self.documents or self.redo):
            raise ValueError("listing goes with no newcomers, documents and redo.")
        for kind in self.liars:
            if kind not in KINDS and kind != FLIPPED:
                raise ValueError(f"liars names {kind!r}; there are {', '.join([*KINDS, FLIPPED])}.")
        if not self.meshes:
            raise ValueError("meshes lists none.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioCase:
    """One run, drawn from a seed; liars: kind of each hostile node, by name.

    kinds: the configuration of each policy of the scenario, which a document may name.
    """

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
    relays: DrawnRelays | None = None
    documents: tuple[DrawnDocument, ...] = ()
    kinds: tuple[Any, ...] = ()
    newcomers: DrawnNewcomers | None = None
    listing: DrawnListing | None = None

    @property
    def later(self) -> Mapping[str, tuple[str, ...]]:
        """The nodes that join later, and the peers that each of them knows at first."""
        joins = self.newcomers.joins if self.newcomers else {}
        later = self.listing.later if self.listing else ()
        return {**{name: (one,) for name, (_, one) in joins.items()}, **dict.fromkeys(later, ())}

    @property
    def honest(self) -> list[str]:
        """The nodes that do not lie, and that are members at the end."""
        names = self.listing.last(self.names) if self.listing else (*self.names, *self.later)
        return [name for name in names if name not in self.liars]

    @property
    def agrees(self) -> bool:
        """Whether all nodes end with equal bits."""
        settled = not (self.liars or self.documents or self.newcomers or self.listing)
        return self.mesh.agrees and self.mode == "sync" and settled

    def lines(self) -> list[str]:
        """Describe the case for people: one line for the mesh, then one per fault."""
        network = (
            f"loss {self.loss:.2f}, duplicates {self.duplicates:.2f}, delays {self.delay_s:.2f} s"
        )
        lies = ", ".join(f"{name} {kind}" for name, kind in self.liars.items()) or "nobody lies"
        machines = f"commits {self.slow_disk_s:.2f} s, clocks {self.skew_s:.0f} s apart"
        mesh = f"{self.mesh.policy['name']} {self.mode}, {len(self.names)} nodes"
        parts = [str(part) for part in (self.relays, self.newcomers, self.listing) if part]
        first = f"{mesh}; {lies}; {network}; {machines}"
        return [first, *parts, *map(str, self.documents), *map(str, self.faults)]


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

    case = ScenarioCase(
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
    if scenario.documents is not None:
        limits = len(scenario.meshes), scenario.rounds, scenario.fault_s
        documents, false = draw_documents(scenario.documents, names, *limits, chance)
        every_liar = {**liars, **false}
        case = replace(case, documents=documents, liars=every_liar, kinds=tuple(configs))
    if scenario.newcomers is not None:
        joins, lies = draw_newcomers(scenario.newcomers, names, chance, scenario.fault_s)
        case = replace(case, newcomers=joins, liars={**case.liars, **lies})
    if scenario.listing is not None:
        listing = draw_listing(scenario.listing, names, chance, scenario.fault_s)
        case = replace(case, listing=listing)
    if scenario.relays is None:
        return case
    drawn, more = draw_relays(scenario.relays, names, chance, scenario.fault_s)
    every = sorted([*case.faults, *(Fault(*each) for each in more)], key=lambda fault: fault.at)
    return replace(case, relays=drawn, faults=tuple(every))


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
    alone = chance.sample(names, chance.randint(0, len(names))) if scenario.redo else []
    return [*drawn, *(Fault(0.0, "cut", (name,), end) for name in alone)]


def play(scenario: Scenario, case: ScenarioCase) -> CaseEnd:
    """Run a case until it ends or breaks a promise."""
    (world, parts), honest = _world(scenario, case), case.honest
    broken: Violation | None = None
    try:
        for name in case.names:
            switch_on(world, name)
        parts.begin()
        world.run(lambda: False, scenario.fault_s)
        _heal(world, case)
        parts.settle()
        until = world.now + scenario.heal_s
        while not judge.well(world, honest) or parts.wrong(honest):
            decide(world)
            if world.now >= until:
                parts.judge(honest)
                raise Violation("AllEndsWell", judge.unwell(world, honest))
            world.run(lambda: False, LOOK_S)
        if case.agrees and not scenario.redo:  # else groups that merged apart may meet at the end
            judge.agreed(world)
        world.run(lambda: not unsaid(world, honest), TOLD_S)
        if text := unsaid(world, honest):
            raise Violation("NobodyDiffersUnsaid", text)
        if text := unfound(world, honest):
            raise Violation("NothingReleasedIsLost", text)
    except Violation as violation:
        broken = violation
    return CaseEnd(case, world.events, world.now, ends.digest(world), broken)


def _world(scenario: Scenario, case: ScenarioCase) -> tuple[World, Parts]:
    world = World(case.seed, (0.001, case.delay_s), case.loss, memorable=False)
    limits = case.seed, scenario.fault_s
    listing = place_listing(world, scenario.listing, case.listing, case.names, *limits)
    growth = None
    if case.newcomers is not None:
        lies = {name: lie for name, lie in case.liars.items() if lie in SPONSOR_LIES}
        growth = Growth(world, case.newcomers, case.names, lies)
    kind = registry.policy(str(case.mesh.policy["name"]))
    others = len(case.names) - 1
    start = StartSettings(peers=1 if scenario.redo else others, timeout_s=5.0)
    remote = case.listing is not None and case.listing.remote
    start = StartSettings() if remote else start
    rounds = RoundSettings(
        mode=case.mode,
        max=scenario.rounds,
        deadline_s=scenario.deadline_s,
        start=start,
        redo=scenario.redo,
    )
    plan = Setup(
        policy=kind,
        config=case.config,
        rounds=rounds,
        seed=1,
        guard=case.mesh.guard,
        domains=_domains(case),
        private=scenario.private,
        counted=scenario.documents is not None,
        tolerance=Tolerance(norm_ratio=1e7, quarantine_s=20.0),  # closed-form prompts may grow
        shown=growth.leases.shown if growth is not None else {},
        places=world.network.places,
        remote=remote,
    )
    world.network.duplicates = case.duplicates
    place_relays(world, case.relays, case.names, case.seed)
    world.checkers = [made(liars=tuple(case.liars)) for made in ALL]
    learners = {name: _learner(case, name) for name in case.names}
    world.place(plan, learners, TUNE_S)
    for name, peers in case.later.items():
        world.place_one(plan, name, peers, _learner(case, name), TUNE_S)
    chance, plot = random.Random(case.seed), Plot.drawn(random.Random(case.seed))
    for name, host in world.hosts.items():
        host.disk_s = chance.uniform(0, case.slow_disk_s)
        host.clock_s = chance.choice([0.0, 1.0, -0.5]) * case.skew_s + HOUR_S
        lie = case.liars.get(name, FLIPPED)
        if lie in KINDS:
            host.liar = liar(lie, case.names, chance, learners[name].initial(1), plot)
    for fault in case.faults:
        schedule(world, fault)
    kinds = [registry.policy(str(mesh.policy["name"])) for mesh in scenario.meshes]
    both, given = list(zip(kinds, case.kinds, strict=False)), scenario.documents
    drawn, liars = case.documents, case.liars
    proposals = place_documents(world, plan, given, drawn, liars, both, case.seed)
    if listing is not None:
        listing.begin()
        world.checkers.append(GoneStayOut(liars=tuple(case.liars)))
    return world, Parts(proposals, growth, listing)


def _learner(case: ScenarioCase, name: str) -> Learner:
    made: Learner = ClosedFormLearner(name, shapes=case.mesh.shapes)
    return Flipped(made) if case.liars.get(name) == FLIPPED else made  # type: ignore[return-value]


def _domains(case: ScenarioCase) -> dict[str, str]:
    among = case.mesh.domains
    names = (*case.names, *case.later) if among else ()
    return {name: among[at % len(among)] for at, name in enumerate(names)}


def _heal(world: World, case: ScenarioCase) -> None:
    """End all faults but slow disks, skewed clocks and hostile nodes, before their set time."""
    for arrive in world.network.heal():
        world.at(0.0, arrive)
    world.network.delay_s = (0.001, 0.02)
    for name in case.names:
        world.hosts[name].full = False
        switch_on(world, name)
        world.command(name, "resume")
