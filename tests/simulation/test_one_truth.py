"""One truth: daemons over gRPC and the simulator end with the same bits, for every policy.

In sync mode, with the torch learner on one thread. The daemons are whole nodes on loopback: driver,
store, gRPC transport. They start in a shuffled order and every message is held back for a drawn
number of turns of the event loop. A deadline that fires fails the test.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fednode import registry
from fednode.clip import model as clip
from fednode.clip.settings import ModelSettings
from fednode.core.events import Effect, Event
from fednode.core.kernel import Kernel
from fednode.core.settings import RoundSettings, StartSettings, Timing
from fednode.core.types import Dtype, PolicyState
from fednode.data.base import DataSettings, NodeData, PartitionSettings
from fednode.data.load import load
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.learn.cache import cache_of
from fednode.learn.features import Features
from fednode.learn.settings import CacheSettings
from fednode.learn.torch_learner import TorchLearner
from fednode.runtime.driver import Driver
from fednode.settings.read import Settings, Source, settings_of, start_of
from fednode.transports.base import Address
from fednode.transports.grpc import GrpcTransport
from tests.unit.runtime.daemons import GUARD_S, driver_of, on_loopback

NODES = ("node-1", "node-2", "node-3")
DOMAINS = ("photo", "art", "photo")
CLASSES = ("accordion", "barrel", "beaver", "gerenuk")
ROUNDS = 2
PATIENT = Timing(0.05, 30.0, suspicion_mult=1e4, sync_interval_s=30.0)
CASES: dict[str, dict[str, Any]] = {
    "local": {},
    "zerodfl": {"recipients": 1},
    "zerodfl common": {"recipients": 1},
    "promptfl": {},
    "promptfl int8": {"wire_dtype": "int8"},
    "promptfl krum": {"merge": {"rule": "krum"}},
    "fedtpg": {},
    "fedclip": {},
    "fedmaple": {},
    "fedotp": {},
    "fedpgp": {},
    "feddpt": {"domains": ["art", "photo"]},
    "feddpt split": {"domains": ["art", "photo"], "visual": "split_ema"},
    "diprompt": {"domains": ["art", "photo"], "participants": 2},
    "plan": {"aggregator_dtype": "float16"},
    "gda": {},
}


@pytest.fixture(scope="module")
def model() -> Iterator[clip.FrozenClip]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield clip.load(ModelSettings())
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def data() -> list[NodeData]:
    return [
        load(
            DataSettings(
                classes=CLASSES,
                shots=1,
                validation=0.05,
                test=0.02,
                partition=PartitionSettings("dirichlet", at, len(NODES), 100.0),
            )
        )
        for at in range(len(NODES))
    ]


@pytest.fixture(scope="module")
def features(model: clip.FrozenClip) -> Features:
    return Features(model, cache_of(CacheSettings()))


def settings(case: str) -> Settings:
    tuning = {"batch_size": 4, "epochs": 1, "context_length": 4, "evaluate_every": 1}
    tree = {"policy": {"name": case.split()[0], **CASES[case]}, "tuning": tuning}
    if case.endswith(" common"):  # ZeroDFL's nodes otherwise begin each from its own prompts
        tree["tuning"]["start"] = "common"
    return settings_of(Source("test", tree))


def learners(
    case: str, model: clip.FrozenClip, data: list[NodeData], features: Features
) -> dict[str, TorchLearner]:
    chosen = settings(case)
    kind, config = chosen.policy.kind, chosen.policy.config
    return {
        name: TorchLearner(
            model,
            registry.prompt_module(kind.name)(model, chosen.tuning, config),
            one,
            chosen.tuning,
            features,
        )
        for name, one in zip(NODES, data, strict=True)
    }


def plan(case: str) -> Setup:
    start = StartSettings(peers=len(NODES) - 1, timeout_s=GUARD_S)
    rounds = RoundSettings("sync", max=ROUNDS, deadline_s=GUARD_S, start=start)
    chosen = settings(case)
    kind, config = chosen.policy.kind, chosen.policy.config
    domains = dict(zip(NODES, DOMAINS, strict=True))
    return Setup(
        policy=kind,
        config=config,
        rounds=rounds,
        seed=1,
        membership=PATIENT,
        domains=domains,
        start=start_of(chosen),
    )


class Shuffling(GrpcTransport):
    """Hold every frame back for a drawn number of turns of the loop."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._chance = random.Random(seed)

    async def send(self, to: Address, frame: bytes, timeout_s: float, who: str = "") -> bytes:
        for _ in range(self._chance.randrange(60)):
            await asyncio.sleep(0)
        return await super().send(to, frame, timeout_s, who)


def through(made: dict[str, Driver], monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Event]:
    """Return an event for each node that is set once its rounds are done.

    A loop that looked again and again would take the processor from the tuning threads.
    """
    found = []
    for driver in made.values():
        ended, kernel, plain = asyncio.Event(), driver.kernel, driver.kernel.step

        def step(
            now: float,
            event: Event,
            ended: asyncio.Event = ended,
            kernel: Kernel = kernel,
            plain: Callable[[float, Event], list[Effect]] = plain,
        ) -> list[Effect]:
            effects = plain(now, event)
            if kernel.view().life == "finished":
                ended.set()
            return effects

        monkeypatch.setattr(kernel, "step", step)
        found.append(ended)
    return found


def simulated(case: str, learned: dict[str, TorchLearner], seed: int) -> dict[str, PolicyState]:
    world = World(seed)
    world.populate(plan(case), learned)
    assert world.run(world.finished, 36000.0)
    kinds = {record.kind for host in world.hosts.values() for record in host.records}
    assert not kinds & {"round.deadline", "round.drift", "round.aborted", "round.taken"}
    return {name: world.kernel(name).policy.state() for name in NODES}


@pytest.mark.parametrize("case", CASES)
async def test_daemons_and_simulator_end_with_the_same_bits(
    case: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: clip.FrozenClip,
    data: list[NodeData],
    features: Features,
) -> None:
    learned = learners(case, model, data, features)
    expected = simulated(case, learned, seed=1)
    shared, order = plan(case), [*NODES]
    random.Random(3).shuffle(order)
    dtype: Dtype = getattr(shared.config, "wire_dtype", "float32")
    made = {
        name: driver_of(shared, tmp_path, name, NODES, learned[name], Shuffling(at), dtype)
        for at, name in enumerate(order, 3)
    }
    async with on_loopback(made), asyncio.timeout(GUARD_S):
        await asyncio.gather(*(ended.wait() for ended in through(made, monkeypatch)))
        found = {name: driver.kernel.policy.state() for name, driver in made.items()}
        kinds = {
            one.record.kind for node in made.values() for one in node.telemetry.events.troubles
        }
    assert not kinds & {"round.deadline", "round.drift", "round.aborted", "round.taken"}
    for name in NODES:
        assert found[name].round == ROUNDS
        assert found[name].tensors == expected[name].tensors
        assert found[name].tuned == expected[name].tuned
        assert found[name].carry == expected[name].carry
        assert found[name].arrays == expected[name].arrays
    alike = {one.tensors for one in found.values()}
    assert (len(alike) == 1) == registry.policy(case.split()[0]).shared_state
