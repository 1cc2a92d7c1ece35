"""Whole nodes in this process: real driver and store, memory transport, closed-form learner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fednode.core.reputation import Tolerance
from fednode.core.settings import (
    LAN,
    RoundSettings,
    StartSettings,
)
from fednode.core.types import Dtype
from fednode.lab.sim.setup import Setup
from fednode.learn.learner import Learner
from fednode.learn.quadratic import QuadraticLearner
from fednode.observe.reply import About
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from fednode.runtime.driver import Driver
from fednode.runtime.worker import Learning
from fednode.storage.store import Store
from fednode.transports.base import Transport
from tests.contract.faults import pause
from tests.contract.memory_transport import Hub, MemoryTransport

ABOUT = About(
    name="a",
    mesh="simulated",
    policy="zerodfl",
    node_id="ID",
    address="127.0.0.1:7101",
    model="fednode-mini",
)
PORTS = {"a": 7101, "b": 7102, "c": 7103}
# Looking without a pause would take the interpreter's lock from the threads that tune and write.
POLL_S = 0.001
# A bound for a test that hangs, not a measurement.
GUARD_S = 180.0
QUICK = replace(LAN, probe_interval_s=0.02, probe_timeout_s=5.0)


def address(name: str) -> str:
    return f"127.0.0.1:{PORTS[name]}"


@dataclass(slots=True)
class Daemon:
    """One running node."""

    driver: Driver
    store: Store
    task: asyncio.Task[None]

    @property
    def round(self) -> int:
        return self.driver.kernel.policy.state().round

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(GUARD_S):
            while not holds():
                assert not self.task.done(), self.task
                await pause(POLL_S)


def driver_of(
    plan: Setup,
    folder: Path,
    name: str,
    peers: Iterable[str],
    learner: Learner,
    transport: Transport,
    dtype: Dtype = "float32",
    **more: Any,
) -> Driver:
    """Return a node that is not running yet, from what its folder holds. more: as Driver."""
    store = Store(folder / name)
    others = tuple(peer for peer in peers if peer != name)
    return Driver(
        kernel=plan.build(name, others, learner)(store.latest()),
        transport=transport,
        store=store,
        learning=Learning(learner=learner, dtype=dtype),
        **{"addresses": {}, **more},
    )


@asynccontextmanager
async def on_loopback(drivers: Mapping[str, Driver]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run nodes that know each other until the block ends; yield their tasks."""
    places = {
        name: await driver.transport.listen("127.0.0.1:0", driver.on_frame)
        for name, driver in drivers.items()
    }
    for name, driver in drivers.items():
        driver.addresses.update({one: places[one] for one in places if one != name})
    tasks = [asyncio.create_task(driver.run()) for driver in drivers.values()]
    try:
        yield tasks
    finally:
        for driver in drivers.values():
            driver.stop()
        await asyncio.gather(*tasks)


def zerodfl(rounds: RoundSettings, tolerance: Tolerance | None = None) -> Setup:
    return Setup(
        policy=ZeroDFL,
        config=ZeroDFLConfig(wire_dtype="float32"),
        rounds=rounds,
        seed=1,
        membership=QUICK,
        tolerance=tolerance or Tolerance(),
    )


@asynccontextmanager
async def running(
    hub: Hub,
    folder: Path,
    name: str,
    peers: Sequence[str] = (),
    most: int = 5,
    learner: Learner | None = None,
    interval_s: float = 0.0,
    tolerance: Tolerance | None = None,
    **more: Any,
) -> AsyncIterator[Daemon]:
    """Run a node until the block ends; it is then stopped as by SIGTERM. more: as Driver."""
    start = StartSettings(peers=len(peers), timeout_s=GUARD_S)
    rounds = RoundSettings("async", max=most, min_interval_s=interval_s, start=start)
    places = {peer: address(peer) for peer in peers}
    driver = driver_of(
        zerodfl(rounds, tolerance),
        folder,
        name,
        peers,
        learner or QuadraticLearner(name),
        MemoryTransport(hub),
        addresses=places,
        **more,
    )
    await driver.transport.listen(address(name), driver.on_frame)
    task = asyncio.create_task(driver.run())
    try:
        yield Daemon(driver, driver._store, task)
    finally:
        driver.stop()
        async with asyncio.timeout(GUARD_S):
            await task
