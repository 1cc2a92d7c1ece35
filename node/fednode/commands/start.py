"""`fednode start`: build one node and run it until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import uvloop

from fednode.app.interfaces import Interfaces
from fednode.app.network import NodeNetwork, get_lease, join, keep_lease
from fednode.app.plan import NodePlan, facts_of, free_facts, learner_of, make, private
from fednode.app.saved import remember
from fednode.core.facts import fingerprint
from fednode.core.kernel import Kernel
from fednode.core.policy import NodeContext
from fednode.errors import ConfigError
from fednode.lab.track.node import tracker_option
from fednode.learn.learner import Learner
from fednode.learn.memory import trim
from fednode.observe import logs
from fednode.observe.telemetry import Telemetry
from fednode.runtime.driver import Door, Driver
from fednode.settings.read import start_of
from fednode.storage.store import Store
from fednode.terminal.paths import PATH, PEERS, settings_here


@click.command()
@click.option("--peers", "peers_path", type=PATH, help="Who is in the mesh [./peers.yaml].")
@click.option("--config", type=PATH, help="Settings [./node.yaml]; defaults work without.")
@click.option("--name", help="Which entry of peers.yaml this node is [FEDNODE_NAME, host name].")
@click.option("--set", "flags", multiple=True, help="section.key=value, after all files.")
@click.option("--state", type=PATH, help="State directory [state_dir, ~/.local/state/fednode].")
@tracker_option
def start(
    peers_path: Path | None,
    config: Path | None,
    name: str | None,
    flags: tuple[str, ...],
    state: Path | None,
    tracker: str | None,
) -> None:
    """Run one node of the mesh in peers.yaml until SIGTERM or Ctrl-C."""
    chosen = () if tracker is None else (f"tracker.kind={tracker}",)
    settings = settings_here(config)
    if settings is not config:
        click.echo(f"The settings are those of ./{settings}.", err=True)
    if peers_path is None and not PEERS.is_file():
        raise ConfigError(
            "There is no peers.yaml here: name one with --peers, or write one with `fednode init`."
        )
    plan = make(peers_path or PEERS, settings, name, (*flags, *chosen), state)
    # Lock the directory first: loading the model takes seconds.
    store = Store(plan.state)
    logs.begin(plan.settings.log, plan.peers.mesh, plan.name, plan.state)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(plan, store))


async def _run(plan: NodePlan, store: Store) -> None:
    """Listen, load, run; a signal ends each of these steps."""
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
        driver = _driver(plan, mesh, store, learner, faces)
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


def _driver(
    plan: NodePlan, mesh: NodeNetwork, store: Store, learner: Learner, faces: Interfaces
) -> Driver:
    settings, facts = plan.settings, facts_of(plan, learner)
    context = NodeContext(
        name=plan.name,
        peers=tuple(peer.name for peer in plan.others),
        mesh=plan.peers.mesh,
        policy=plan.policy.name,
        fingerprint=fingerprint(facts),
        seed=settings.seed,
        rounds=replace(settings.rounds, mode=plan.mode),
        samples=learner.samples,
        domain=settings.data.domain,
        address=plan.address,
        id="" if plan.peers.insecure else mesh.identity.id,
        proof=mesh.identity.proof,
        topology=settings.topology,
        guard=settings.guard,
        start=start_of(settings),
    )
    store.bind({"name": plan.name, **facts}, free_facts(plan))
    remember(plan.state, plan.name, plan.settings, learner.classes)
    kernel = Kernel.resume(
        context,
        plan.policy.kind,
        plan.policy.config,
        lambda: learner.initial(context.start_seed),
        facts,
        settings.membership.timing,
        store.latest(),
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
