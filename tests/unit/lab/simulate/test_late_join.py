"""A node that joins when half of the rounds are over ends about where the others do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fednode import registry
from fednode.clip import model as clip
from fednode.core.settings import StartSettings
from fednode.lab.experiment.cell import LIMIT_S
from fednode.lab.experiment.files import load_experiment, settings_of
from fednode.lab.experiment.judge import Judge, Parts
from fednode.lab.experiment.scene import scene
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.learn.cache import cache_of
from fednode.learn.features import Features
from fednode.learn.settings import CacheSettings
from fednode.learn.torch_learner import TorchLearner

pytestmark = pytest.mark.slow
FILE = """\
title: late
data: {path: builtin, shots: 8, test: 0.2}
model: fednode-mini
protocol: {kind: base-to-new, clients: 5}
rounds: 40
tuning: {init_words: a photo of a, context_length: 4, lr: 0.03, batch_size: 200}
methods:
  - {label: ZeroDFL, policy: {name: zerodfl, recipients: 4}}
  - {label: PromptFL, policy: promptfl}
"""
LATE = "node-05"


@pytest.mark.parametrize("at", [0, 1], ids=["zerodfl", "promptfl"])
def test_a_late_joiner_ends_within_two_points_of_the_others(tmp_path: Path, at: int) -> None:
    file = tmp_path / "late.yaml"
    file.write_text(FILE)
    experiment = load_experiment(file)
    method = experiment.methods[at]
    frozen = clip.load(experiment.model)
    parts = Parts(frozen, Features(frozen, cache_of(CacheSettings())))
    differences = []
    for seed in (1, 2, 3):
        shown = scene(experiment, seed, "")
        settings = settings_of(experiment, method, "late", shown.domains)
        kind, config = settings.policy.kind, settings.policy.config
        objective = registry.prompt_module(kind.name)(frozen, settings.tuning, config)
        learners = {
            one.name: TorchLearner(frozen, objective, one.data, settings.tuning, parts.features)
            for one in shown.clients
        }
        rounds = replace(settings.rounds, start=StartSettings(3), deadline_s=30.0)
        world = World(seed, memorable=False)
        world.populate(
            Setup(
                policy=kind,
                config=config,
                rounds=rounds,
                seed=seed,
            ),
            learners,
        )
        world.crash(LATE)
        reached = world.run(lambda world=world: world.kernel("node-01").view().round >= 20, LIMIT_S)  # type: ignore[misc]
        assert reached
        world.start(LATE)
        assert world.run(world.finished, LIMIT_S)
        prompts = {
            name: host.durable.policy.tuned
            for name, host in world.hosts.items()
            if host.durable is not None
        }
        scores = Judge(parts, objective, settings.tuning).scores(shown, prompts)["new"]
        others = np.mean([scores[name] for name in scores if name != LATE])
        differences.append(100 * (scores[LATE] - float(others)))
        print(f"{method.label} seed {seed}: late {100 * scores[LATE]:.1f} %, "
              f"others {100 * float(others):.1f} %")  # fmt: skip
    assert abs(float(np.mean(differences))) <= 2.0, differences
