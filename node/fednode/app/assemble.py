"""Assemble a node from its plan, and run it: network, interfaces, learner, kernel and driver."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from concurrent.futures import Future
from typing import Any

import uvloop

from fednode.app.interfaces import Interfaces
from fednode.app.network import NodeNetwork, get_lease, join, keep_lease
from fednode.app.plan import NodePlan, facts_of, learner_of, private, tie
from fednode.app.saved import remember
from fednode.core.assemble import kernel_of
from fednode.core.policy import NodeContext
from fednode.learn.learner import Learner
from fednode.learn.memory import trim
from fednode.observe.telemetry import Telemetry
from fednode.runtime.driver import Door, Driver
from fednode.settings.read import start_of
from fednode.storage.store import Store


def run(plan: NodePlan, store: Store) -> None:
    """Run a node until SIGTERM or SIGINT."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(live(plan, store))


async def live(plan: NodePlan, store: Store) -> None:
    """Listen, load, then run a node; SIGTERM or SIGINT ends each of these steps."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    mesh, door = join(plan), Door()
    transport, known = mesh.transport, plan.address
    own = plan.settings.listen or known
    faces = Interfaces(plan, mesh, store)
    transport.add_service(faces.register)
    try:
        await faces.open()  # before peers see this node, because the page takes a moment to load
        await transport.listen(own, door.on_frame)
        log = logging.getLogger("fednode")
        where = known if plan.peers.insecure else f"{known} --state {plan.state}"
        log.info("%s listens on %s; look at it with: fednode status %s", plan.name, own, where)
        enrolling = asyncio.create_task(get_lease(plan, mesh))
        loading = _loaded(plan)
        if not (await _unless(stop, loading) and await _unless(stop, enrolling)):
            enrolling.cancel()
            return
        learner = loading.result()
        driver = driver_of(plan, mesh, store, learner, faces)
        await faces.attach(driver, learner)
        door.open(driver.on_frame)
        beside = [asyncio.create_task(_pass_on(stop, driver, faces))]
        beside.append(asyncio.create_task(keep_lease(plan, mesh)))
        await driver.run()
        for task in beside:
            task.cancel()
    finally:
        await faces.close()
        await transport.close()
        store.close()


async def _pass_on(stop: asyncio.Event, driver: Driver, faces: Interfaces) -> None:
    await stop.wait()
    await faces.draining()
    driver.stop()


def _loaded(plan: NodePlan) -> asyncio.Future[Learner]:
    """Load images and model on a thread that does not keep the process alive."""
    done: Future[Learner] = Future()
    done.set_running_or_notify_cancel()  # the result is set even if nothing waits for it

    def load() -> None:
        try:
            learner = learner_of(plan.settings, plan.name)
            trim()
            done.set_result(private(plan, learner))
        except BaseException as fault:
            done.set_exception(fault)

    threading.Thread(target=load, name="load", daemon=True).start()
    return asyncio.wrap_future(done)


async def _unless(stop: asyncio.Event, work: asyncio.Future[Any]) -> bool:
    """Wait for work and tell whether it finished; cancel the work if the stop comes first.

    Raise what the work raised.
    """
    stopping = asyncio.ensure_future(stop.wait())
    both: set[asyncio.Future[Any]] = {work, stopping}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not work.done():
        return not work.cancel()
    work.result()
    return True


def driver_of(
    plan: NodePlan, mesh: NodeNetwork, store: Store, learner: Learner, faces: Interfaces
) -> Driver:
    """Return the driver of a node whose parts are loaded; tie its state directory to its settings.

    Raise StateError if the directory belongs to other settings.
    """
    settings, facts = plan.settings, facts_of(plan, learner)
    context = NodeContext(
        name=plan.name,
        peers=tuple(peer.name for peer in plan.others),
        mesh=plan.peers.mesh,
        seed=settings.seed,
        rounds=settings.rounds,
        samples=learner.samples,
        domain=settings.data.domain,
        address=plan.address,
        id="" if plan.peers.insecure else mesh.identity.id,
        proof=mesh.identity.proof,
        topology=settings.topology,
        guard=settings.guard,
        start=start_of(settings),
    )
    tie(store, plan, facts)
    remember(plan.state, plan.name, plan.settings, learner.classes)
    kernel = kernel_of(
        context,
        plan.policy.kind,
        plan.policy.config,
        learner.initial,
        facts,
        store.latest(),
        settings.membership.timing,
    )
    driver = Driver(
        kernel=kernel,
        transport=mesh.transport,
        store=store,
        learner=learner,
        addresses={peer.name: peer.address for peer in plan.others},
        dtype=plan.policy.wire_dtype,
        trust=mesh.trust,
        refusals=mesh.refusals,
        limits=settings.limits,
        telemetry=Telemetry.restored(store.meters(), faces.events, faces.metrics),
        remember=lambda classes: remember(plan.state, plan.name, plan.settings, classes),
    )
    driver.tell(mesh.contacts)
    return driver
