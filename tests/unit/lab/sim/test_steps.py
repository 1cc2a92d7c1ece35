"""How many steps of tuning stand behind the rows that ZeroDFL's nodes end with.

A row's depth is the number of tunings that it and the rows it came from went through. In lock step
it is the number of rounds. A merge that replaces a row just tuned by an older one loses depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from fednode.core.events import Effect, Event
from fednode.core.reputation import Tolerance
from fednode.core.settings import LAN, Barrier, RoundSettings
from fednode.core.settings import StartSettings as Start
from fednode.core.types import Job, Progress, Report, Tensors
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import Checker, World
from fednode.lab.simulate.faults import switch_on
from fednode.learn.quadratic import QuadraticLearner
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig

ROUNDS = 100
PLAIN = ZeroDFLConfig(wire_dtype="float32")
LIMIT_S = 3600.0
STILL = replace(LAN, probe_interval_s=1e5, sync_interval_s=1e6)
EQUAL, UNEQUAL = (1.0,), (1.0, 1.5, 2.0, 3.0, 4.0)
"""The seconds that a tuning takes, relative to the fastest; the nodes take these in turn."""


class Counting(QuadraticLearner):
    """Count in each row how often it was tuned."""

    def initial(self, seed: int) -> Tensors:
        """Return rows that nobody tuned."""
        return Tensors({"context": np.zeros((4, 1))})

    def tune(
        self, job: Job, cancelled: Callable[[], bool], progress: Callable[[Progress], None]
    ) -> Report:
        """Add one to each row."""
        return Report(
            tensors=Tensors({"context": job.tensors["context"] + 1.0}),
            metrics={"loss": 1.0, "validation_loss": 1.0},
            samples=8,
        )


def depth(
    mode: Barrier, nodes: int, paces: tuple[float, ...], rounds: int = ROUNDS, **config: Any
) -> float:
    """Run a mesh on a local network; return the mean depth of the rows that are tested."""
    policy = ZeroDFLConfig(wire_dtype="float32", **config)
    world, names = ended(nodes, paces, RoundSettings(mode=mode, max=rounds), policy=policy)
    ends = [world.kernel(name).policy.state().tuned["context"] for name in names]
    return fmean(float(one.mean()) for one in ends)


def ended(
    nodes: int,
    paces: tuple[float, ...],
    rounds: RoundSettings,
    checkers: Sequence[Checker] = (),
    policy: ZeroDFLConfig = PLAIN,
) -> tuple[World, list[str]]:
    """Run a mesh on a local network to its end; return it and the names of its nodes."""
    names = [f"n{number:02}" for number in range(nodes)]
    world = World(1, delay_s=(0.001, 0.005), memorable=False)
    world.checkers += checkers
    plan = Setup(
        policy=ZeroDFL,
        config=policy,
        rounds=replace(rounds, start=Start(peers=nodes - 1)),
        seed=1,
        membership=STILL,
        tolerance=Tolerance(norm_ratio=1e6),  # counts are no prompts
    )
    world.place(plan, {name: Counting(name) for name in names})
    for number, name in enumerate(names):
        world.hosts[name].tune_s = 0.2 * paces[number % len(paces)]
        world.hosts[name].disk_s = 0.01  # a commit takes longer than a message
    world.start(*names)
    assert world.run(world.finished, LIMIT_S)
    return world, names


@pytest.mark.parametrize("gate", [None, 0.1])
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_at_equal_speeds_no_step_is_lost(mode: Barrier, gate: float | None) -> None:
    """A gate that lets every row in loses none either."""
    assert depth(mode, 5, EQUAL, admit_rise=gate) == ROUNDS


def test_at_equal_speeds_thirty_nodes_lose_no_step() -> None:
    assert depth("async", 30, EQUAL, rounds=20) == 20


@pytest.mark.parametrize("nodes", [5, 30])
def test_at_unequal_speeds_most_steps_are_kept(nodes: int) -> None:
    """A received row lies idle until the next round begins; only that time is lost."""
    assert depth("async", nodes, UNEQUAL, rounds=20) > 0.75 * 20


class FirstEnd(Checker):
    """Note every node's round when the first node has ended its rounds."""

    def __init__(self) -> None:
        self.rounds: dict[str, int] = {}
        self.at = 0.0

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        """Look at the node that took a step."""
        if not self.rounds and world.kernel(name).view().life == "finished":
            self.rounds = {one: world.kernel(one).view().round for one in world.hosts}
            self.at = world.now


@pytest.mark.parametrize(("lead", "round_of_slow"), [(5, range(22, 27)), (None, range(9, 12))])
def test_fast_nodes_wait_for_a_slow_one(lead: int | None, round_of_slow: range) -> None:
    """Two nodes take 30 rounds beside one that takes three times as long."""
    end = FirstEnd()
    rounds = RoundSettings(mode="async", max=30, lead=lead)
    ended(3, (1.0, 1.0, 3.0), rounds, [end])
    assert end.rounds["n02"] in round_of_slow
    assert max(end.rounds.values()) == 30


def test_after_a_crash_a_mesh_finds_its_pace_again() -> None:
    """A node is off from 5 to 9 s, which is 20 rounds; it ends 4 s after nodes that never crash."""
    names = [f"n{number:02}" for number in range(40)]
    world = World(1, memorable=False)
    rounds = RoundSettings(mode="async", max=75, start=Start(timeout_s=5.0))
    plan = Setup(policy=ZeroDFL, config=ZeroDFLConfig(), rounds=rounds, seed=1)
    world.populate(plan, {name: QuadraticLearner(name) for name in names}, 0.2)
    world.at(5.0, lambda: world.crash("n07"))
    world.at(9.0, lambda: switch_on(world, "n07"))
    assert world.run(world.finished, LIMIT_S)
    assert 75 * 0.2 + 4.0 < world.now < 75 * 0.2 + 4.0 + 0.5


def test_a_node_that_is_far_slower_is_not_waited_for_longer_and_longer() -> None:
    """30 rounds of 0.21 s take 6.3 s. Ten such times are lost on a peer that stands still."""
    end = FirstEnd()
    ended(3, (1.0, 1.0, 100.0), RoundSettings(mode="async", max=30), [end])
    assert end.rounds["n02"] == 0
    assert 6.3 < end.at < 6.3 + (10 + 4) * 0.21
