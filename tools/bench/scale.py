"""`python -m tools.bench.scale`: how a simulated mesh grows, with the closed-form learner.

All nodes start at once and know each other's names. From START_S on, one node after another, drawn
by the seed, crashes and comes back AWAY_S later with what its disk holds. Crashes end when the
rounds should be over. The mesh then goes on until SETTLED_S at least, so that membership is watched
for longer than one comparison of lists takes. How often nodes crash is a choice. If the whole mesh
has a crash every CRASH_EVERY_S, its number does not depend on the size, and each node crashes less
often in a larger mesh. If each node crashes so many times a minute, the whole mesh has more news
to tell, the larger it is.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

import click

from fednode import registry
from fednode.core.members.phases import PHASES
from fednode.core.settings import RoundSettings, StartSettings
from fednode.errors import ConfigError, FednodeError
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.lab.simulate.ends import consensus_distance
from fednode.lab.simulate.faults import switch_on
from fednode.learn.closed_form import ClosedFormLearner
from fednode.transports.framing import Traffic
from tools.bench.timer import as_json, show

ALL_TO_ALL_MAX: Final = 64
"""Most nodes of a policy whose nodes all exchange with all others."""
ALL_TO_ALL_ROUNDS: Final = 50
"""Most rounds of such a policy: each of its rounds costs a message for each pair of nodes."""
NODES_MAX: Final = 1000
START_S: Final = 10.0
CRASH_EVERY_S: Final = 2.0
AWAY_S: Final = 4.0
CHURN_S: Final = 40.0
"""If each node crashes so many times a minute, crashes go on until then, however few rounds."""
SETTLED_S: Final = 45.0
LIMIT_S: Final = 3600.0
"""Virtual seconds after the last crash within which all nodes must have run their rounds."""
TUNE_S: Final = 0.2
EVENTS_MAX: Final = 100_000_000
SIZES: Final = (8, 16, 32, 64, 125, 250, 500, 1000)
NOTE: Final = (
    "There is no reference: compare the rows. seconds and cpu_s are this machine's; all else\n"
    "repeats exactly with the same seed. prompts: a node and round. watch, list, hello: what a\n"
    "node sends for membership in a virtual second, and parts of it."
)
SMALL: Final = {"text.art": (4, 8), "text.photo": (4, 8), "visual.art": (8,), "visual.photo": (8,)}


@dataclass(frozen=True, slots=True)
class Kind:
    """A policy that can be measured.

    most: nodes. rounds: at most. domains, shapes: of its learners.
    """

    most: int
    rounds: int
    domains: tuple[str, ...] = ()
    shapes: dict[str, tuple[int, ...]] | None = None
    settings: dict[str, Any] = field(default_factory=dict)


KINDS: Final = {
    "zerodfl": Kind(NODES_MAX, 10_000),
    "promptfl": Kind(ALL_TO_ALL_MAX, ALL_TO_ALL_ROUNDS),
    "feddpt": Kind(
        ALL_TO_ALL_MAX,
        ALL_TO_ALL_ROUNDS,
        ("art", "photo"),
        dict(SMALL),
        {"domains": ("art", "photo")},
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRow:
    """One run.

    seconds: wall clock. cpu_s: of this process, for a machine that others use, too. events: of the
    simulator. crashes: each with a return. live: the fewest other nodes that a node sees as live at
    the end. consensus: distance of the nodes' prompts from their mean at the end. prompt_bytes:
    frames of prompts, a node a round. greetings: messages "hello" of a node until START_S.
    watch_messages, watch_bytes: of membership, a node a virtual second, from START_S on.
    list_bytes, hello_bytes: the parts of watch_bytes that compare lists and that greet.
    """

    policy: str
    nodes: int
    rounds: int
    seconds: float
    cpu_s: float
    events: int
    virtual_s: float
    crashes: int
    live: int
    consensus: float
    prompt_messages: float
    prompt_bytes: float
    greetings: float
    watch_messages: float
    watch_bytes: float
    list_bytes: float
    hello_bytes: float


def measure(
    policy: str,
    nodes: int,
    rounds: int,
    seed: int,
    told: Callable[[str], None] = lambda _: None,
    churn: float | None = None,
) -> ScaleRow:
    """Run one mesh.

    told: called with a sentence on how far it is, every ten virtual seconds. churn: crashes a node
    and minute; None for a crash of the whole mesh every CRASH_EVERY_S.

    Raise FednodeError if some node does not run all its rounds.
    """
    rounds = min(rounds, KINDS[policy].rounds)
    # A run makes hardly any cycles of references; to search millions of objects for them takes a
    # tenth of its time.
    gc.disable()
    try:
        return _measured(policy, nodes, rounds, seed, told, churn)
    finally:
        gc.enable()


def _measured(
    policy: str,
    nodes: int,
    rounds: int,
    seed: int,
    told: Callable[[str], None],
    churn: float | None,
) -> ScaleRow:
    began, worked = time.perf_counter(), time.process_time()
    world = _world(policy, nodes, rounds, seed)
    world.run(lambda: False, START_S)
    first = _traffic(world)
    if churn is None:
        crashes = _crash(world, rounds * TUNE_S, CRASH_EVERY_S, seed)
    else:
        crashes = _crash(world, max(rounds * TUNE_S, CHURN_S), 60.0 / (churn * nodes), seed)
    _finish(world, rounds, told)
    last, watched_s = _traffic(world), world.now - START_S
    watch = _of(last, PHASES)
    before = _of(first, PHASES)
    lists, hellos = (
        _of(last, {phase}).serialized - _of(first, {phase}).serialized
        for phase in ("members", "hello")
    )
    prompts = _of(last, set(last) - PHASES)
    kernels = [world.kernel(name) for name in sorted(world.hosts)]
    return ScaleRow(
        policy=policy,
        nodes=nodes,
        rounds=min(kernel.policy.round for kernel in kernels),
        seconds=time.perf_counter() - began,
        cpu_s=time.process_time() - worked,
        events=world.events,
        virtual_s=world.now,
        crashes=crashes[0],
        live=min(sum(peer.live for peer in kernel.view().peers) for kernel in kernels),
        consensus=consensus_distance([kernel.policy.state().tensors for kernel in kernels]),
        prompt_messages=prompts.messages / nodes / rounds,
        prompt_bytes=prompts.serialized / nodes / rounds,
        greetings=_of(first, {"hello"}).messages / nodes,
        watch_messages=(watch.messages - before.messages) / nodes / watched_s,
        watch_bytes=(watch.serialized - before.serialized) / nodes / watched_s,
        list_bytes=lists / nodes / watched_s,
        hello_bytes=hellos / nodes / watched_s,
    )


def _world(policy: str, nodes: int, rounds: int, seed: int) -> World:
    kind, chosen = registry.policy(policy), KINDS[policy]
    width = len(str(nodes - 1))
    names = [f"n{at:0{width}d}" for at in range(nodes)]
    among = chosen.domains
    plan = Setup(
        policy=kind,
        config=kind.config_type(**chosen.settings),
        rounds=RoundSettings(max=rounds, deadline_s=5.0, start=StartSettings(timeout_s=5.0)),
        seed=seed,
        domains={name: among[at % len(among)] for at, name in enumerate(names)} if among else {},
    )
    world = World(seed, memorable=False)
    world.events_max = EVENTS_MAX
    learners = {name: ClosedFormLearner(name, shapes=chosen.shapes) for name in names}
    world.populate(plan, learners, TUNE_S)
    return world


def _crash(world: World, until: float, every_s: float, seed: int) -> list[int]:
    """Let nodes crash and return, now and then until a virtual time; return a count to read later.

    The next node is drawn among all that are on.
    """
    draw, count = random.Random(seed), [0]

    def crash() -> None:
        on = [name for name in sorted(world.hosts) if world.hosts[name].kernel is not None]
        if len(on) > 2:  # the others still have somebody to watch
            name = draw.choice(on)
            count[0] += 1
            world.crash(name)
            world.at(AWAY_S, lambda: switch_on(world, name))
        if world.now + every_s < until:
            world.at(every_s, crash)

    if world.now < until:
        world.at(0.0, crash)
    return count


def _finish(world: World, rounds: int, told: Callable[[str], None]) -> None:
    """Run until all nodes are on and have run their rounds, and until SETTLED_S."""
    end = world.now + rounds * TUNE_S + LIMIT_S
    hosts = world.hosts.values()
    while world.now < end:
        least = min(host.durable.policy.round if host.durable else 0 for host in hosts)
        off = sum(host.kernel is None for host in hosts)
        if least >= rounds and not off and world.now >= SETTLED_S:
            return
        told(
            f"at {world.now:.0f} virtual s: every node has {least} of {rounds} rounds, "
            f"{off} of {len(hosts)} off, {world.events:,} events"
        )
        world.run(lambda: False, 10.0 if rounds * TUNE_S - world.now > 20.0 else 1.0)
    raise FednodeError(
        f"After {world.now:.0f} virtual seconds a node was still in round {least} of {rounds}; "
        "give fewer rounds, or report this as a defect."
    )


def _traffic(world: World) -> dict[str, Traffic]:
    totals: dict[str, Traffic] = {}
    for phase, traffic in world.traffic.items():
        totals[phase] = Traffic()
        totals[phase].add(traffic)
    return totals


def _of(traffic: dict[str, Traffic], phases: Iterable[str]) -> Traffic:
    total = Traffic()
    for phase in phases:
        total.add(traffic.get(phase, Traffic()))
    return total


@click.command()
@click.option("--nodes", type=click.IntRange(min=2), multiple=True, help="Of a mesh (8 to 1000).")
@click.option("--rounds", type=click.IntRange(1, 10_000), default=500, show_default=True)
@click.option("--policy", type=click.Choice(list(KINDS)), multiple=True, help="All by default.")
@click.option(
    "--churn",
    type=click.FloatRange(0, 4, min_open=True),
    help="Crashes a node and minute; without it, a node of the mesh crashes every two seconds.",
)
@click.option("--seed", default=1, show_default=True, help="Of crashes, delays and draws.")
@as_json
def scale(
    nodes: tuple[int, ...],
    rounds: int,
    policy: tuple[str, ...],
    churn: float | None,
    seed: int,
    as_json: bool,
) -> None:
    """Run meshes of more and more nodes in the simulator, with crashes.

    ZeroDFL runs with up to 1,000 nodes. promptfl and feddpt send to all others, so they run with up
    to 64 nodes, for at most 50 rounds.
    """
    chosen, sizes = policy or tuple(KINDS), nodes or SIZES
    runs = [(kind, size) for kind in chosen for size in sizes if size <= KINDS[kind].most]
    if not runs:
        most = max(KINDS[kind].most for kind in chosen)
        raise ConfigError(
            f"--nodes is {min(sizes):,}; {', '.join(chosen)} runs with at most {most:,} nodes here."
        )
    rows = []
    for kind, size in runs:
        click.echo(f"{kind}, {size:,} nodes", err=True)
        rows.append(asdict(measure(kind, size, rounds, seed, partial(click.echo, err=True), churn)))
    show(f"Simulated meshes, {rounds} rounds, with crashes", rows, as_json, NOTE)


if __name__ == "__main__":
    scale()
