"""Where nodes begin: all from the same prompts, or each from its own draw of (run seed, name)."""

from __future__ import annotations

import numpy as np
import pytest

from fednode.core.policy import start_seed
from fednode.core.settings import Initial, RoundSettings, StartSettings
from fednode.core.types import Tensors
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.learn.quadratic import QuadraticLearner
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig

NAMES = tuple("abcde")
LIMIT_S = 3600.0


def test_own_starts_are_drawn_from_the_run_seed_and_the_name() -> None:
    assert start_seed("common", 7, "a") == start_seed("common", 7, "b") == 7
    own = {(seed, name): start_seed("own", seed, name) for seed in (1, 2) for name in NAMES}
    assert len(set(own.values())) == len(own)
    assert own == {key: start_seed("own", *key) for key in own}


def mesh(start: Initial, seed: int = 1) -> World:
    rounds = RoundSettings(mode="sync", max=6, start=StartSettings(peers=len(NAMES) - 1))
    plan = Setup(
        policy=ZeroDFL, config=ZeroDFLConfig(recipients=2), rounds=rounds, seed=seed, start=start
    )
    made = World(3)
    made.populate(plan, {name: QuadraticLearner(name) for name in NAMES})
    return made


def begun(world: World) -> dict[str, Tensors]:
    return {name: world.kernel(name).policy.state().tensors for name in NAMES}


def test_with_own_starts_no_two_nodes_begin_alike() -> None:
    found = begun(mesh("own"))
    assert len({one.digest for one in found.values()}) == len(NAMES)
    for name, one in found.items():
        assert one == QuadraticLearner(name).initial(start_seed("own", 1, name))
    assert found == begun(mesh("own"))
    assert found != begun(mesh("own", seed=2))


def test_with_a_common_start_all_begin_alike() -> None:
    found = begun(mesh("common"))
    assert {one.digest for one in found.values()} == {QuadraticLearner("a").initial(1).digest}


@pytest.mark.parametrize("start", ["common", "own"])
def test_a_mesh_runs_from_either_start_and_repeats_itself(start: Initial) -> None:
    ends = []
    for _ in range(2):
        made = mesh(start)
        assert made.run(made.finished, LIMIT_S)
        records = [one for host in made.hosts.values() for one in host.records]
        assert not [one for one in records if one.level in {"warning", "error"}]
        ends.append(begun(made))
    assert ends[0] == ends[1]
    norms = [float(np.linalg.norm(one["context"])) for one in ends[0].values()]
    assert all(np.isfinite(norms))


def test_a_node_that_starts_again_goes_on_from_its_disk() -> None:
    made = mesh("own")
    assert made.run(lambda: made.kernel("a").view().round >= 3, LIMIT_S)
    held = made.hosts["a"].durable
    assert held is not None
    made.crash("a")
    made.start("a")
    assert made.kernel("a").policy.state() == held.policy
    made.crash("b")
    made.hosts["b"].wipe()
    made.start("b")
    assert begun(made)["b"] == QuadraticLearner("b").initial(start_seed("own", 1, "b"))
