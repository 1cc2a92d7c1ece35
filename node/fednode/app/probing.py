"""What `fednode check` asks running nodes: whether they are as this one is, and reach it."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fednode.app.asking import everyone
from fednode.app.network import IDENTITY, client_of, identity_in, join, place_of, places_of
from fednode.app.plan import NodePlan
from fednode.app.standing import lost_in
from fednode.errors import FednodeError, KeyRefused, Unreachable
from fednode.identity.enrol import introducer as at
from fednode.identity.enrol import judge_token
from fednode.identity.identity import Identity
from fednode.identity.keys import KEY_FILE
from fednode.learn.learner import Learner
from fednode.observe.classes import compared
from fednode.observe.client import Client
from fednode.observe.health import HealthService
from fednode.observe.status import STRANGE
from fednode.runtime.door import Door
from fednode.transports.address import RELAY
from fednode.transports.proxy import connector
from fednode.wire.gen.status_pb2 import StatusReply

CLOCK_S: Final = 5.0
"""Clocks may differ by so much, beyond the time that the question took."""
CLASSES_NAMED: Final = 1000
"""Most names in a sentence on classes."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What a peer said. fault: why it does not reach this node; "" if it does.

    young: it has not heard of this node yet, which may have joined a moment ago.

    ahead_s: by how much its clock is ahead of this machine's; 0 if they may be equal.
    """

    peer: str
    address: str = ""
    fault: str = ""
    ahead_s: float = 0.0
    young: bool = False

    def sentence(self, name: str) -> str:
        """Return what it means for the node of this name."""
        place = f" at {self.address}" if self.address else ""
        if self.young:
            return f"{self.peer} has not heard of {name} yet: other members tell it."
        if self.fault:
            return f"{self.peer} cannot reach {name}{place}: {self.fault}."
        clocks = "the clocks agree"
        if self.ahead_s:
            side = "ahead of" if self.ahead_s > 0 else "behind"
            clocks = (
                f"its clock is {abs(self.ahead_s):.0f} s {side} this machine's, and leases and "
                "certificates end by the clock"
            )
        return f"{self.peer} reaches {name}{place}; {clocks}."


async def runs(plan: NodePlan) -> bool:
    """Tell whether the node itself answers at its address."""
    try:
        async with client_of(plan.peers, plan.state) as client:
            own = plan.listen
            if own == RELAY:
                own = f"{RELAY}:{identity_in(plan.state, plan.peers.mesh, plan.name).id}"
            return (await client.status(own)).name == plan.name
    except FednodeError:
        return False


async def probe(plan: NodePlan, running: bool) -> list[Probed]:
    """Let every peer that runs call this node back; peers that do not answer are left out.

    running: the node answers itself; otherwise this process answers in its place for the moment, as
    a node does that is loading. Raise ConfigError without a key, AddressError if it cannot listen.
    """
    place = contextlib.nullcontext() if running else _answering(plan)
    async with client_of(plan.peers, plan.state) as client, place:
        others = await _others(plan, client, running)
        asked = [_probed(client, peer, where, plan.name) for peer, where in others.items()]
        probes = [probed for probed in await asyncio.gather(*asked) if probed is not None]
    if not plan.peers.grows:
        return probes
    young = (probe.fault.startswith(STRANGE) for probe in probes)
    return [replace(probe, young=new) for probe, new in zip(probes, young, strict=True)]


async def _others(plan: NodePlan, client: Client, running: bool) -> dict[str, str]:
    """Return the other nodes and where they are asked: those of peers.yaml, and further members.

    running: the node answers itself, and names members. They may not know a node that never ran.
    """
    places = places_of(plan.peers, plan.state)
    if running:
        places = dict(await everyone(client, list({**places, plan.name: place_of(plan)}.items())))
    places.pop(plan.name, None)
    return places


async def _probed(client: Client, peer: str, address: str, name: str) -> Probed | None:
    began, clock = time.monotonic(), time.time()
    try:
        reply = await client.probe(address, name)
    except Unreachable:
        return None
    except FednodeError as fault:
        return Probed(peer, fault=str(fault).rstrip("."))
    took = time.monotonic() - began
    ahead = reply.clock - (clock + took / 2)
    unequal = abs(ahead) > CLOCK_S + took / 2
    return Probed(peer, reply.address, reply.fault, ahead if unequal else 0.0)


def keyless(plan: NodePlan) -> bool:
    """Tell whether the node has no key yet, and makes one at its first start to get a lease."""
    listed = any(peer.id for peer in plan.peers.peers if peer.name == plan.name)
    missing = not (plan.state / IDENTITY / KEY_FILE).is_file()
    return missing and plan.peers.introducer is not None and not listed


async def introduced(plan: NodePlan) -> tuple[bool, str]:
    """Ask the introducer whether it would give the node a lease; return (good, a sentence).

    The text is "" if the node needs no lease. No token is used up, and no key is made.
    """
    introducer, mesh_key = plan.peers.introducer, plan.peers.mesh_key
    if introducer is None or mesh_key is None:
        return True, ""
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) if keyless(plan) else plan.state / IDENTITY
        identity = Identity(own, plan.peers.mesh, plan.name)
        if not identity.wants_lease():
            return True, ""
        asked = identity, at(mesh_key, introducer), plan.address, plan.settings.token or ""
        try:
            await judge_token(*asked, connector(plan.settings.proxy))
        except FednodeError as fault:
            return False, str(fault)
    way = "makes its key and " if keyless(plan) else ""
    text = f"The introducer at {introducer} answers and would enrol {plan.name!r}"
    return True, f"{text}: the first start {way}gets the lease."


@contextlib.asynccontextmanager
async def _answering(plan: NodePlan) -> AsyncIterator[None]:
    """Listen at the node's address, with its key, and answer its peers' health checks."""
    if not plan.peers.insecure:
        identity_in(plan.state, plan.peers.mesh, plan.name)  # `join` would make a key
    transport, health = join(plan).transport, HealthService()
    transport.add_service(health.register)
    await health.loading()
    try:
        await transport.listen(plan.listen, Door().on_frame)
        yield
    finally:
        await transport.close()


async def compared_with_peers(
    plan: NodePlan, learner: Learner, ours: str, running: bool
) -> list[tuple[bool, str]]:
    """Return a sentence on each peer that is silent or not as this node is, and whether it is well.

    ours: the fingerprint of this node's settings. running: the node answers itself.
    """
    findings, told = list[tuple[bool, str]](), dict[str, list[str]]()
    barred = list[str]()
    slowest = 0.0
    async with client_of(plan.peers, plan.state) as client:
        for peer, where in sorted((await _others(plan, client, running)).items()):
            began, relayed = time.monotonic(), where.partition(":")[0] == RELAY
            address = RELAY if relayed else where
            try:
                reply = await client.status(where)
            except KeyRefused as fault:
                barred.append(f"{peer}: {fault}")
                continue
            except Unreachable:
                findings.append((True, f"{peer} at {address} does not answer yet."))
                continue
            except FednodeError as fault:
                findings.append((False, f"{peer}: {fault}"))
                continue
            told[peer] = list(reply.classes)
            if relayed:
                slowest = max(slowest, time.monotonic() - began)
            own = next((member for member in reply.peers if member.name == plan.name), None)
            if own is not None and own.unreached:
                findings.append((False, f"{peer} cannot reach {plan.name}: {own.unreached}."))
            differing = _differing(plan, learner, ours, peer, reply)
            if differing:
                findings.append((False, f"{peer} at {address}: {'; '.join(differing)}."))
    lost = lost_in(plan.state, plan.peers, plan.name) if barred else ""
    findings += [(False, text) for text in ([lost] if lost else barred)]
    texts = compared(learner.classes, told, CLASSES_NAMED) if plan.compares_classes else []
    texts += slow(slowest, plan.settings.membership.timing.probe_timeout_s)
    return findings + [(True, text) for text in texts]


def slow(first_call_s: float, probe_timeout_s: float) -> list[str]:
    """Return what to set where first calls through a relay take long for the failure detector."""
    if first_call_s <= probe_timeout_s / 2:
        return []
    return [
        f"The slowest first call through a relay took {first_call_s:.2g} s, and a ping may take "
        f"{probe_timeout_s:g} s: set membership.preset to wan on all nodes."
    ]


def _differing(
    plan: NodePlan, learner: Learner, ours: str, peer: str, reply: StatusReply
) -> list[str]:
    seen = {"name": reply.name, "mesh": reply.mesh, "policy": reply.policy}
    here = {"name": peer, "mesh": plan.peers.mesh, "policy": plan.policy.name}
    if reply.backbone:
        seen["model"], here["model"] = reply.backbone[:12], learner.backbone[:12]
    differing = [f"{key} is {here[key]} here and {seen[key]} there" for key in here
             if here[key] != seen[key]]  # fmt: skip
    if not differing and reply.fingerprint not in {"", ours}:
        return ["its settings differ; start this node to see in which key"]
    return differing
