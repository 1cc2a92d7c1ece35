"""A node that joins when half of the rounds are over ends about where the others do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fednode.clip import model as clip
from fednode.core.settings import StartSettings
from fednode.lab.experiment.cell import LIMIT_S, Judge, Parts, prepare
from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.scene import scene
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.learn.features import Features
from fednode.learn.torch_learner import TorchLearner

pytestmark = pytest.mark.slow
EXPERIMENT: dict[str, Any] = {
    "data": {"path": "builtin", "shots": 8},
    "protocol": {"kind": "base-to-new", "clients": 5},
    "rounds": 40,
    "tuning": {"init_words": "a photo of a", "context_length": 4, "lr": 0.03, "batch_size": 200},
}
LATE = "node-05"


@pytest.mark.parametrize("policy", [{"name": "zerodfl", "recipients": 4}, {"name": "promptfl"}])
def test_a_late_joiner_ends_within_two_points_of_the_others(policy: dict[str, Any]) -> None:
    experiment = load_experiment(EXPERIMENT, more={"ours": {"policy": policy}})
    frozen = clip.load(experiment.model)
    parts = Parts(frozen, Features(frozen))
    differences = []
    for seed in (1, 2, 3):
        made = prepare(experiment, experiment.methods[0], seed, scene(experiment, seed, ""), parts)
        tuning, chosen = made.settings.tuning, made.settings.policy
        learners = {
            one.name: TorchLearner(frozen, made.objective, one.data, tuning, parts.features)
            for one in made.scene.clients
        }
        rounds = replace(made.settings.rounds, start=StartSettings(3), deadline_s=30.0)
        world = World(seed, memorable=False)
        world.populate(
            Setup(policy=chosen.kind, config=chosen.config, rounds=rounds, seed=seed), learners
        )
        world.crash(LATE)
        first = world.kernel("node-01")
        assert world.run(lambda first=first: first.view().round >= 20, LIMIT_S)  # type: ignore[misc]
        world.start(LATE)
        assert world.run(world.finished, LIMIT_S)
        ends = {name: host.durable for name, host in world.hosts.items()}
        prompts = {name: end.policy.tuned for name, end in ends.items() if end is not None}
        scores = Judge(parts, made.modules, tuning).scores(made.scene, prompts)["new"]
        others = np.mean([scores[name] for name in scores if name != LATE])
        differences.append(100 * (scores[LATE] - float(others)))
    assert abs(float(np.mean(differences))) <= 2.0, differences
