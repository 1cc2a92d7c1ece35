"""Real drivers over real gRPC, with every fault at every point: rounds go on, and all end alike."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from fednode.core.settings import PRESETS, RoundSettings, StartSettings
from fednode.lab.sim.setup import Setup
from fednode.learn.quadratic import QuadraticLearner
from fednode.policies.promptfl import PromptFLConfig
from fednode.runtime.driver import Driver
from fednode.runtime.worker import Learning
from fednode.storage.store import Store
from fednode.transports.grpc import GrpcTransport
from tests.contract.faults import WHATS, WHENS, Faulty, What, When, pause
from tests.unit.policies.methods import PROMPTFL

NAMES = ("a", "b", "c")
GUARD_S = 180.0
ROUNDS = 6


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("what", WHATS)
async def test_a_faulty_transport_costs_time_and_nothing_else(
    tmp_path: Path, what: What, when: When
) -> None:
    start = StartSettings(peers=2, timeout_s=GUARD_S)
    rounds = RoundSettings("sync", ROUNDS, deadline_s=GUARD_S, start=start)
    membership = replace(PRESETS["wan"], probe_interval_s=0.1, suspicion_mult=1e3)
    plan = Setup(
        policy=PROMPTFL,
        config=PromptFLConfig(),
        rounds=rounds,
        seed=1,
        membership=membership,
    )
    drivers, places = {}, {}
    for at, name in enumerate(NAMES):
        # One of the three misbehaves; the others are as they should be.
        real = GrpcTransport()
        transport = Faulty(real, what, when) if at == 0 else real
        store = Store(tmp_path / name)
        learner = QuadraticLearner(name)
        kernel = plan.build(name, tuple(one for one in NAMES if one != name), learner)(None)
        drivers[name] = Driver(
            kernel=kernel,
            transport=transport,
            store=store,
            learning=Learning(learner=learner),
            addresses={},
        )
        places[name] = await transport.listen("127.0.0.1:0", drivers[name].on_frame)
    for name, driver in drivers.items():
        driver.addresses.update({one: places[one] for one in NAMES if one != name})
    tasks = [asyncio.create_task(driver.run()) for driver in drivers.values()]
    try:
        async with asyncio.timeout(GUARD_S):
            while any(one.kernel.view().life != "finished" for one in drivers.values()):
                assert not any(task.done() for task in tasks)
                await pause(0.01)
        faulty = drivers["a"].transport
        assert isinstance(faulty, Faulty)
        assert faulty.times > 0, "no fault happened"
        states = {name: one.kernel.policy.state() for name, one in drivers.items()}
        assert {one.round for one in states.values()} == {ROUNDS}
        assert len({one.tensors.digest for one in states.values()}) == 1
    finally:
        for driver in drivers.values():
            driver.stop()
        await asyncio.gather(*tasks)
