"""`python -m tools.bench.scale`: how a simulated mesh grows, with the closed-form learner.

All nodes start at once and know each other's names. From START_S on, one node after another, drawn
by the seed, crashes and comes back AWAY_S later with what its disk holds. Crashes end when the
rounds should be over. The mesh then goes on until SETTLED_S at least, so that membership is watched
for longer than one comparison of lists takes. With `--churn` each node crashes so often, and a
larger mesh has more news to tell; without it the number of crashes does not depend on the size.
"""

from __future__ import annotations

import copy
import gc
import random
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from fednode import registry
from fednode.core.settings import RoundSettings, StartSettings
from fednode.core.types import PHASES
from fednode.errors import FednodeError
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.lab.simulate.ends import consensus_distance
from fednode.lab.simulate.faults import switch_on
from fednode.learn.quadratic import QuadraticLearner
from fednode.transports.framing import Traffic
from tools.bench.timer import as_json, show

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
    "There is no reference: compare the rows. seconds, and cpu of this process, are this\n"
    "machine's; all else repeats exactly with the same seed. live: the fewest other nodes that a\n"
    "node sees as live at the end. consensus: distance of the nodes' prompts from their mean.\n"
    "prompts: frames, a node and round. hellos: of a node until 10 virtual s. watch, list, hello:\n"
    "what a node sends for membership in a virtual second after that, and parts of it."
)


def measure(
    policy: str, nodes: int, rounds: int, seed: int, churn: float | None = None
) -> dict[str, Any]:
    """Run one mesh; raise FednodeError if some node does not run all its rounds.

    churn: crashes a node and minute; None for a crash of the whole mesh every CRASH_EVERY_S.
    """
    began, worked = time.perf_counter(), time.process_time()
    world = _world(policy, nodes, rounds, seed)
    world.run(lambda: False, START_S)
    first = copy.deepcopy(world.traffic)
    every_s = 60.0 / (churn * nodes) if churn else CRASH_EVERY_S
    crashes = _crash(world, max(rounds * TUNE_S, CHURN_S if churn else 0.0), every_s, seed)
    _finish(world, rounds)
    last, watched_s = world.traffic, world.now - START_S
    watch, before = _of(last, PHASES), _of(first, PHASES)
    lists, hellos = (
        _of(last, {phase}).serialized - _of(first, {phase}).serialized
        for phase in ("members", "hello")
    )
    prompts = _of(last, set(last) - PHASES)
    kernels = [world.kernel(name) for name in sorted(world.hosts)]
    return {
        "policy": policy,
        "nodes": nodes,
        "rounds": min(kernel.policy.round for kernel in kernels),
        "seconds": time.perf_counter() - began,
        "cpu, s": time.process_time() - worked,
        "virtual, s": world.now,
        "crashes": crashes[0],
        "live": min(sum(peer.live for peer in kernel.view().peers) for kernel in kernels),
        "consensus": consensus_distance([kernel.policy.state().tensors for kernel in kernels]),
        "prompts": prompts.messages / nodes / rounds,
        "prompts, bytes": prompts.serialized / nodes / rounds,
        "hellos": _of(first, {"hello"}).messages / nodes,
        "watch/s": (watch.messages - before.messages) / nodes / watched_s,
        "watch, bytes/s": (watch.serialized - before.serialized) / nodes / watched_s,
        "list, bytes/s": lists / nodes / watched_s,
        "hello, bytes/s": hellos / nodes / watched_s,
    }


def _world(policy: str, nodes: int, rounds: int, seed: int) -> World:
    kind = registry.policy(policy)
    names = [f"n{at:0{len(str(nodes - 1))}d}" for at in range(nodes)]
    plan = Setup(
        policy=kind,
        config=kind.config_type(),
        rounds=RoundSettings(max=rounds, deadline_s=5.0, start=StartSettings(timeout_s=5.0)),
        seed=seed,
    )
    world = World(seed, memorable=False)
    world.events_max = EVENTS_MAX
    world.populate(plan, {name: QuadraticLearner(name) for name in names}, TUNE_S)
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


def _finish(world: World, rounds: int) -> None:
    """Run until all nodes are on and have run their rounds, and until SETTLED_S."""
    end = world.now + rounds * TUNE_S + LIMIT_S
    hosts = world.hosts.values()
    while world.now < end:
        least = min(host.durable.policy.round if host.durable else 0 for host in hosts)
        off = sum(host.kernel is None for host in hosts)
        if least >= rounds and not off and world.now >= SETTLED_S:
            return
        world.run(lambda: False, 10.0 if rounds * TUNE_S - world.now > 20.0 else 1.0)
    raise FednodeError(
        f"After {world.now:.0f} virtual seconds a node was still in round {least} of {rounds}; "
        "give fewer rounds, or report this as a defect."
    )


def _of(traffic: Mapping[str, Traffic], phases: Iterable[str]) -> Traffic:
    total = Traffic()
    for phase in phases:
        total.add(traffic.get(phase, Traffic()))
    return total


@click.command()
@click.option("--nodes", type=click.IntRange(min=2), multiple=True, help="Of a mesh (8 to 1000).")
@click.option("--rounds", type=click.IntRange(1, 10_000), default=500, show_default=True)
@click.option("--policy", default="zerodfl", show_default=True, help="zerodfl or promptfl.")
@click.option(
    "--churn",
    type=click.FloatRange(0, 4, min_open=True),
    help="Crashes a node and minute; without it, a node of the mesh crashes every two seconds.",
)
@click.option("--seed", default=1, show_default=True, help="Of crashes, delays and draws.")
@as_json
def scale(
    nodes: tuple[int, ...], rounds: int, policy: str, churn: float | None, seed: int, as_json: bool
) -> None:
    """Run meshes of more and more nodes in the simulator, with crashes.

    With promptfl each round costs a message for each pair of nodes: give at most 64 nodes and 50
    rounds.
    """
    rows = []
    for size in nodes or SIZES:
        click.echo(f"{policy}, {size:,} nodes", err=True)
        rows.append(measure(policy, size, rounds, seed, churn))
    show(f"Simulated meshes, {rounds} rounds, with crashes", rows, as_json, NOTE)


if __name__ == "__main__":
    gc.disable()  # a run makes hardly any cycles; to search for them takes a tenth of its time
    scale()
