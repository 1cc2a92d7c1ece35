"""Processes started by `fednode start` end with the bits that the simulator has, PLAN and ZeroDFL.

test_one_truth.py compares every policy, with daemons in one process. These slow tests compare whole
processes: settings from the command line, and each its own model, images and state directory.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fednode import registry
from fednode.clip import model as clip
from fednode.core.settings import RoundSettings, StartSettings
from fednode.data.base import DataSettings, PartitionSettings
from fednode.data.load import load
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.learn.features import Features
from fednode.learn.torch_learner import TorchLearner
from fednode.settings.read import Source, settings_of, start_of
from fednode.wire.gen.status_pb2 import StatusReply
from fednode_bootstrap.mesh import LocalMesh, MeshSettings
from tests.unit.storage.stored import read_snapshot

NODES = ("node-1", "node-2", "node-3")
CLASSES = ("accordion", "barrel", "beaver", "gerenuk")
ROUNDS = 2
LIMIT_S = 180.0


async def daemons(folder: Path, policy: str) -> None:
    settings = MeshSettings(
        run_dir=folder,
        nodes=len(NODES),
        settings=(
            f"policy.name={policy}",
            "tuning.batch_size=4",
            "tuning.context_length=3",
            "tuning.init_words=null",
            f"data.classes=[{', '.join(CLASSES)}]",
            "data.shots=1",
            "data.test=0.1",
            "data.partition.how=dirichlet",
            "data.partition.alpha=100.0",
            f"rounds={{mode: sync, max: {ROUNDS}, deadline_s: {LIMIT_S}, "
            f"start: {{peers: {len(NODES) - 1}, timeout_s: {LIMIT_S}}}}}",
            "membership.preset=wan",
        ),
        poll_s=0.1,
    )
    async with LocalMesh(settings) as mesh:

        def through(name: str) -> bool:
            return (mesh.members[name].status or StatusReply(name=name)).round >= ROUNDS

        await mesh.wait_for(lambda: all(map(through, NODES)), LIMIT_S)


def simulated(model: clip.FrozenClip, policy: str) -> World:
    tuning = {"batch_size": 4, "context_length": 3, "init_words": None}
    settings = settings_of(Source("test", {"policy": {"name": policy}, "tuning": tuning}))
    kind, config = settings.policy.kind, settings.policy.config
    features = Features(model)
    learners = {}
    for at, name in enumerate(NODES):
        share = PartitionSettings("dirichlet", at, len(NODES), 100.0)
        data = load(DataSettings(classes=CLASSES, shots=1, test=0.1, partition=share))
        objective = registry.prompt_module(policy)(model, settings.tuning, config)
        learners[name] = TorchLearner(model, objective, data, settings.tuning, features)
    rounds = RoundSettings("sync", max=ROUNDS, start=StartSettings(len(NODES) - 1))
    world = World(7)
    start = start_of(settings)
    plan = Setup(
        policy=kind,
        config=config,
        rounds=rounds,
        seed=1,
        start=start,
    )
    world.populate(plan, learners)
    assert world.run(world.finished, 36000.0)
    return world


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("policy", ["plan", "zerodfl"])
async def test_processes_and_simulator_end_with_the_same_bits(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in the daemons, which encode whole batches; see tests/conftest.py.
    monkeypatch.setattr("fednode.learn.features.BATCH", 32)
    monkeypatch.setattr("fednode.clip.trunk.CHUNK", 8)
    await daemons(tmp_path, policy)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        settings = settings_of(Source("test", {"policy": {"name": policy}}))
        world = simulated(clip.load(settings.model), policy)
    finally:
        torch.set_num_threads(threads)
    for name in NODES:
        found, wanted = read_snapshot(tmp_path / name).policy, world.hosts[name].durable
        assert wanted is not None
        assert found.round == wanted.policy.round == ROUNDS
        assert found.tensors == wanted.policy.tensors
        assert found.tuned == wanted.policy.tuned
        assert found.carry == wanted.policy.carry
