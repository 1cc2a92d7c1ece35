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
from fednode.transports.base import Transport
from fednode.transports.grpc import GrpcTransport
from tests.contract.faults import WHATS, WHENS, Faulty, What, When, pause
from tests.unit.policies.methods import PROMPTFL
from tests.unit.runtime.daemons import GUARD_S, driver_of, on_loopback

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
    faulty = Faulty(GrpcTransport(), what, when)
    transports: dict[str, Transport] = {"a": faulty, "b": GrpcTransport(), "c": GrpcTransport()}
    drivers = {
        name: driver_of(plan, tmp_path, name, transports, QuadraticLearner(name), transport)
        for name, transport in transports.items()
    }
    async with on_loopback(drivers) as tasks, asyncio.timeout(GUARD_S):
        while any(one.kernel.view().life != "finished" for one in drivers.values()):
            assert not any(task.done() for task in tasks)
            await pause(0.01)
        assert faulty.times > 0, "no fault happened"
        states = [one.kernel.policy.state() for one in drivers.values()]
        assert {one.round for one in states} == {ROUNDS}
        assert len({one.tensors.digest for one in states}) == 1
