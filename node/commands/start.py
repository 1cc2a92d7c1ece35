"""`fednode start`: put one node together and run it until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import click
import uvloop

from bootstrap.identity import load_or_create, node_id
from node.commands.plan import Plan, learner_of, make, remember
from node.core.facts import fingerprint
from node.core.kernel import Kernel
from node.core.policy import Context
from node.learn.learner import Learner
from node.runtime.driver import Driver
from node.runtime.status import About, NodeService
from node.runtime.store import Store
from node.transports.grpc import GrpcTransport


@click.command()
@click.option("--peers", "peers_path", type=Path, required=True, help="Who is in the mesh.")
@click.option("--config", type=Path, help="node.yaml; defaults work without one.")
@click.option("--name", help="Which entry of peers.yaml this node is [FEDNODE_NAME, host name].")
@click.option("--set", "flags", multiple=True, help="section.key=value, after all files.")
@click.option("--state", type=Path, help="State directory [state_dir, ~/.local/state/fednode].")
def start(
    peers_path: Path,
    config: Path | None,
    name: str | None,
    flags: tuple[str, ...],
    state: Path | None,
) -> None:
    """Run one node of the mesh in PEERS until SIGTERM or Ctrl-C."""
    plan = make(peers_path, config, name, flags, state)
    _log(plan.settings.log_level)
    # The directory is locked before the seconds that a model takes to load.
    store = Store(plan.state)
    learner = learner_of(plan.settings, plan.name, plan.state)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(plan, store, learner))


def _log(level: str) -> None:
    """Show fednode's own lines; libraries log on the root logger, which stays quiet."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    ours = logging.getLogger("fednode")
    ours.setLevel(level.upper())
    ours.addHandler(handler)
    ours.propagate = False
    logging.getLogger().addHandler(logging.NullHandler())


def _facts(plan: Plan, learner: Learner) -> dict[str, str]:
    facts = {f"policy.{key}": str(value) for key, value in asdict(plan.policy_config).items()}
    return {
        **facts,
        "mesh": plan.peers.mesh,
        "policy.name": plan.policy.name,
        "backbone": learner.backbone,
        "schema": learner.schema,
        "rounds.mode": plan.settings.rounds.mode or plan.policy.default_mode,
        "tuning.context_length": str(plan.settings.tuning.context_length),
    }


async def _run(plan: Plan, store: Store, learner: Learner) -> None:
    settings, facts = plan.settings, _facts(plan, learner)
    rounds = settings.rounds
    if rounds.mode is None:
        rounds = replace(rounds, mode=plan.policy.default_mode)
    context = Context(
        plan.name,
        tuple(sorted(peer.name for peer in plan.peers.peers if peer.name != plan.name)),
        plan.peers.mesh,
        plan.policy.name,
        fingerprint(facts),
        settings.seed,
        rounds,
        learner.samples,
    )
    store.bind({"name": plan.name, **facts})
    remember(plan, learner)
    identity = load_or_create(plan.state / "identity")
    driver = _driver(plan, context, facts, store, learner)
    own = settings.listen or plan.peers.entry(plan.name).address
    about = About(
        node_id(identity),
        own,
        settings.model.name,
        learner.backbone,
        learner.classes,
        learner.notes,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, driver.stop)
    transport = driver.transport
    assert isinstance(transport, GrpcTransport)
    transport.add_service(NodeService(driver, store, about).register)
    logging.getLogger("fednode").info(
        "%s listens on %s; look at it with: fednode status %s", plan.name, own, own
    )
    await driver.run(own)


def _driver(
    plan: Plan, context: Context, facts: Mapping[str, str], store: Store, learner: Learner
) -> Driver:
    settings, restored = plan.settings, store.latest()
    if restored is None:
        initial = learner.initial(settings.seed)
        policy = plan.policy.start(plan.policy_config, context, initial)
    else:
        policy = plan.policy.restore(plan.policy_config, context, restored.policy)
    kernel = Kernel(context, policy, facts, settings.membership, settings.guard, restored)
    addresses = {p.name: p.address for p in plan.peers.peers if p.name != plan.name}
    return Driver(
        kernel,
        GrpcTransport(),
        store,
        learner,
        addresses,
        getattr(plan.policy_config, "wire_dtype", "float32"),
        settings.membership.probe_timeout_s,
    )
