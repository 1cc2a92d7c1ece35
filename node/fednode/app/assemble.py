"""Assemble a node from its plan, and run it: network, interfaces, learner, kernel and driver."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import uvloop

from fednode.app.baseline import keep_comparison
from fednode.app.mesh import Mesh, connect, revoked
from fednode.app.peer_cache import PeerCache
from fednode.app.plan import NodePlan, facts_of, learner_of, privacy_of, sums_fault, tie
from fednode.app.servers import Servers
from fednode.app.state_dir import remember
from fednode.core.events import Record
from fednode.core.kernel import kernel_of
from fednode.core.policy import NodeContext
from fednode.data.base import ProgressFn
from fednode.errors import ConfigError, IdentityError
from fednode.freed import trim
from fednode.learn.learner import Learner
from fednode.observe.telemetry import Telemetry
from fednode.runtime.driver import Door, Driver
from fednode.runtime.worker import Learning
from fednode.settings.read import start_of
from fednode.storage.store import RUNS, Store
from fednode.terminal.stop import call_at_end
from fednode.transports.address import RELAY, asked_at

if TYPE_CHECKING:  # the accountant's library takes a moment to load
    from fednode.learn.privacy import Privacy

LOOK_S: Final = 1.0
"""Time between two looks at the members."""
LEDGER_S: Final = 0.3
"""Time between two looks at the ledger, which the operator's commands change."""
RELAY_DRAIN_S: Final = 5.0
"""How long streams through this node may go on when it stops."""
STOPPING: Final = (
    "stopping: a round that is being written is completed; tuning under way is given up and done "
    "again at the next start; Ctrl-C again ends the node at once"
)
GOES_ON: Final = "%s stopped after round %d; the same command goes on from there"
LEFT: Final = (
    "%s left the mesh after round %d; while its state directory is kept, the same command goes on "
    "from there"
)
AT_ONCE: Final = "ended at once; the same command goes on from the last round that was written"
INTERRUPTED: Final = 130
"""Exit code of a node that a second Ctrl-C ended."""


def run(plan: NodePlan, store: Store) -> None:
    uvloop.run(live(plan, store))


async def live(plan: NodePlan, store: Store) -> None:
    """Listen, load, then run a node; SIGTERM, SIGHUP or SIGINT ends each of these steps.

    Raise IdentityError if the mesh revoked the node's key, also when the node hears of it.
    """
    stop = _stopped_by_signals()
    try:
        mesh = connect(plan)
        if mesh.roster is not None:
            mesh.roster.on_revoked = partial(_stop_if_revoked, mesh, stop)
    except BaseException:
        store.close()
        raise
    await _serve(plan, store, mesh, stop)
    if text := revoked(mesh.roster, mesh.identity):
        raise IdentityError(text)


def _stop_if_revoked(mesh: Mesh, stop: asyncio.Event) -> None:
    text = revoked(mesh.roster, mesh.identity)
    if text and not stop.is_set():
        mesh.refusals.show(Record("identity.revoked", text, "error"))
        stop.set()


async def _serve(plan: NodePlan, store: Store, mesh: Mesh, stop: asyncio.Event) -> None:
    """Listen, load, then run a node until it is to stop."""
    door, transport, own = Door(), mesh.transport, plan.listen
    servers = Servers(plan, mesh, store)
    transport.add_service(servers.register)
    beside = list[asyncio.Task[None]]()
    try:
        await servers.open()  # before peers see this node, because the page takes a moment to load
        await transport.listen(own, door.on_frame)
        if mesh.sponsor is not None:
            servers.service.admission = mesh.sponsor
            beside.append(asyncio.create_task(every(LEDGER_S, mesh.sponsor.look)))
        log = logging.getLogger("fednode")
        said = f"listens on {own}" if own != RELAY else "waits at relays, and listens nowhere"
        asked = f"{asked_at(plan.address, plan.name)} --state {plan.state}"
        where = plan.address if plan.peers.insecure else asked
        log.info("%s %s; look at it with: fednode status %s", plan.name, said, where)
        loading = _loaded(plan, servers.working)
        if not await _unless(stop, loading):
            log.info("%s stopped while it loaded; it changed nothing", plan.name)
            return
        learner, privacy = loading.result()
        servers.service.privacy = lambda: privacy.note
        driver = driver_of(plan, mesh, store, learner, privacy, servers)
        await servers.attach(driver, learner)
        if mesh.sponsor is not None:
            mesh.sponsor.attach(driver, learner.backbone)
            beside.append(asyncio.create_task(mesh.sponsor.keep_certificate(transport)))
        door.open(driver.on_frame)
        beside.append(asyncio.create_task(_pass_on(stop, driver, servers)))
        if mesh.cache is not None:
            store_members = partial(_store_members, mesh.cache, driver)
            beside.append(asyncio.create_task(every(LOOK_S, store_members)))
        if plan.compares_classes:
            compare = servers.service.compare_classes
            beside.append(asyncio.create_task(every(LOOK_S, compare)))
        await driver.run()
        if mesh.relay is not None:
            await mesh.relay.drain(RELAY_DRAIN_S)
        if mesh.cache is not None:
            mesh.cache.store(driver.view().peers)
        if not revoked(mesh.roster, mesh.identity):
            log.info(LEFT if driver.left else GOES_ON, plan.name, driver.view().round)
    finally:
        for task in beside:
            task.cancel()
        await servers.close()
        await transport.close()
        store.close()


def _stopped_by_signals() -> asyncio.Event:
    """Return what the first SIGTERM, SIGHUP or Ctrl-C sets; a Ctrl-C after it ends the process."""
    stop = asyncio.Event()
    log = logging.getLogger("fednode")

    def take(number: signal.Signals) -> None:
        if not stop.is_set():
            log.info(STOPPING)
            stop.set()
        elif number == signal.SIGINT:
            log.info(AT_ONCE)
            os._exit(INTERRUPTED)  # what is adopted outlives a crash, so it outlives this

    call_at_end(take)
    return stop


async def _pass_on(stop: asyncio.Event, driver: Driver, servers: Servers) -> None:
    await stop.wait()
    await servers.health.draining()
    driver.stop()


async def _store_members(cache: PeerCache, driver: Driver) -> None:
    await asyncio.to_thread(cache.store, tuple(driver.view().peers))


async def every(seconds: float, look: Callable[[], Awaitable[object]]) -> None:
    """Look again and again, for as long as the node runs."""
    while True:
        await look()
        await asyncio.sleep(seconds)


def _loaded(plan: NodePlan, progress: ProgressFn) -> asyncio.Future[tuple[Learner, Privacy]]:
    """Load images and model on a thread that does not keep the process alive."""
    done: Future[tuple[Learner, Privacy]] = Future()
    done.set_running_or_notify_cancel()  # the result is set even if nothing waits for it

    def load() -> None:
        try:
            learner = learner_of(plan.settings, plan.name, progress=progress)
            if fault := sums_fault(plan, learner):
                raise ConfigError(fault)
            trim()
            done.set_result((learner, privacy_of(plan, learner)))
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
    plan: NodePlan,
    mesh: Mesh,
    store: Store,
    learner: Learner,
    privacy: Privacy,
    servers: Servers,
) -> Driver:
    """Return the driver of a node whose parts are loaded; tie its state directory to its settings.

    If its settings make another run, such as another policy or model, the rounds begin anew, and
    the run before is kept. Raise StateError if the directory belongs to another node.
    """
    settings, facts = plan.settings, facts_of(plan, learner)
    if why := tie(store, plan, facts):
        store.begin_anew({"name": plan.name, **facts})
        keep_comparison(plan.state, [])  # that of `fednode eval` was of the run before
        text = f"the rounds begin anew, because {why}; earlier runs lie in {plan.state / RUNS}"
        mesh.refusals.show(Record("run.began", text, "warning"))
    remember(plan.state, plan.name, plan.settings, learner.classes)
    kernel = kernel_of(
        context_of(plan, mesh, learner, secrets.token_hex(4)),
        plan.policy.kind,
        plan.policy.config,
        learner.initial,
        facts,
        store.latest(),
        settings.membership.timing,
        account=privacy.account,
    )
    driver = Driver(
        kernel=kernel,
        transport=mesh.transport,
        store=store,
        learning=Learning(
            learner=learner,
            dtype=plan.policy.wire_dtype,
            remember=lambda classes: remember(plan.state, plan.name, settings, classes),
            release=privacy.release,
            spend=privacy.missed,
        ),
        addresses={peer.name: peer.address for peer in plan.others},
        members=mesh.members,
        refusals=mesh.refusals,
        limits=settings.limits,
        telemetry=Telemetry(servers.events, servers.metrics),
    )
    driver.tell(mesh.contacts)
    return driver


def context_of(plan: NodePlan, mesh: Mesh, learner: Learner, boot: str) -> NodeContext:
    """Return what a node's policy may know. boot: what this start drew (NodeContext)."""
    settings = plan.settings
    return NodeContext(
        name=plan.name,
        peers=tuple(peer.name for peer in plan.others),
        mesh=plan.peers.mesh,
        seed=settings.seed,
        rounds=settings.rounds,
        samples=learner.announced[1],
        domain=settings.data.domain,
        address=plan.address,
        id=mesh.id,
        proof=b"" if mesh.identity is None else mesh.identity.proof,
        topology=settings.topology,
        guard=settings.guard,
        start=start_of(settings),
        remote=plan.remote,
        grows=plan.peers.mesh_key is not None,
        boot=boot,
        private=settings.privacy.clip is not None,
    )
