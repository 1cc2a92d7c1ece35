"""Connect a node to its mesh: its identity, the members that it trusts, its transport."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fednode.app.plan import NodePlan
from fednode.app.saved import ROOT
from fednode.core.types import Update
from fednode.errors import ConfigError, FednodeError, IdentityError, Unreachable
from fednode.identity import keys
from fednode.identity.enrol import enrol
from fednode.identity.identity import Identity, disarm
from fednode.identity.trust import Believes, Listed, Trust
from fednode.observe.client import Client
from fednode.observe.telemetry import Refusals
from fednode.settings.peers import Peers
from fednode.transports.grpc import GrpcTransport
from fednode.transports.tls import Tls

ENROL_TRIES: Final = 10
ENROL_WAIT_S: Final = 3.0
IDENTITY: Final = "identity"
KEPT: Final = "believed"
"""File of the revocations and key successions that this node accepted, one per line."""
RENEWAL_S: Final = 6 * 3600.0
LOG = logging.getLogger("fednode")


@dataclass(slots=True)
class NodeNetwork:
    """A node's identity, trust and transport, before it listens."""

    identity: Identity
    trust: Believes
    transport: GrpcTransport
    refusals: Refusals
    contacts: list[Update] = field(default_factory=list)


def join(plan: NodePlan) -> NodeNetwork:
    """Build a node's identity, trust and transport: plain text on loopback, or mutual TLS.

    Raise ConfigError if the node's key is not the one in peers.yaml, StateError if the stored trust
    is damaged.
    """
    identity = Identity(plan.state / IDENTITY, plan.peers.mesh, plan.name)
    refusals = Refusals()
    if plan.peers.insecure:
        names = frozenset(peer.name for peer in plan.peers.peers)
        return NodeNetwork(identity, Listed(names), GrpcTransport(), refusals)
    listed = next((peer.id for peer in plan.peers.peers if peer.name == plan.name), None)
    if listed not in {None, identity.id} and not identity.proof:
        raise ConfigError(
            f"peers.yaml gives {plan.name!r} the id {listed}, and the key in "
            f"{plan.state / IDENTITY} has {identity.id}: give that id, or the state directory "
            "that holds the key."
        )
    trust = trust_of(plan.peers)
    trust.keep_in(plan.state / IDENTITY / KEPT)
    return NodeNetwork(identity, trust, transport_of(identity, trust, refusals), refusals)


def trust_of(peers: Peers) -> Trust:
    """Return the trust of a peers.yaml; raise ConfigError for a wrong revocation."""
    key = None if peers.mesh_key is None else keys.read_public(peers.mesh_key)
    trust = Trust(
        mesh=peers.mesh, listed={peer.name: peer.id or "" for peer in peers.peers}, mesh_key=key
    )
    for line in peers.revoked:
        try:
            trust.take_revocation(disarm(line))
        except IdentityError as fault:
            raise ConfigError(f"A line of `revoked` in peers.yaml is wrong: {fault}.") from fault
    return trust


def transport_of(identity: Identity, trust: Trust, refusals: Refusals) -> GrpcTransport:
    """Return a mutual TLS transport that admits trusted keys and records refused connections."""
    return GrpcTransport(Tls(identity.credentials, trust.judge, refusals.note))


async def get_lease(plan: NodePlan, mesh: NodeNetwork) -> None:
    """Enrol with the introducer if there is one and a lease is wanted; try for some time.

    Raise FednodeError if that fails and the node has no lease to continue with.
    """
    introducer, mesh_key = plan.peers.introducer, plan.peers.mesh_key
    if introducer is None or mesh_key is None or not mesh.identity.wants_lease():
        return
    token = plan.settings.token or ""
    for left in range(ENROL_TRIES - 1, -1, -1):
        try:
            found = await enrol(mesh.identity, mesh_key, introducer, plan.address, token)
        except Unreachable as fault:
            if mesh.identity.lease is not None:
                LOG.warning("%s The lease that this node has holds for now.", fault)
                return
            if not left:
                raise
            LOG.info("%s Trying again in %g s.", fault, ENROL_WAIT_S)
            await asyncio.sleep(ENROL_WAIT_S)
        else:
            mesh.contacts += found.contacts
            assert isinstance(mesh.trust, Trust)
            mesh.contacts += [mesh.trust.take_revocation(one) for one in found.revocations]
            return


async def keep_lease(plan: NodePlan, mesh: NodeNetwork) -> None:
    """Renew the lease before it ends, for as long as the node runs."""
    while True:
        await asyncio.sleep(RENEWAL_S)
        try:
            await get_lease(plan, mesh)
        except FednodeError as fault:
            LOG.warning("The lease could not be renewed: %s", fault)


def client_of(peers: Peers | None, state: Path | None, timeout_s: float = 3.0) -> Client:
    """Return a client for the nodes of a mesh, with a node's key if the mesh uses TLS.

    state: directory of the key, or name of a node of this machine; None uses any node's key of this
    machine, because every member may ask.
    """
    if peers is None or peers.insecure:
        return Client(timeout_s)
    folder = key_folder(peers.mesh, state)
    identity = identity_in(folder, peers.mesh, folder.name)
    return Client(timeout_s, transport_of(identity, trust_of(peers), Refusals()))


def key_folder(mesh: str, state: Path | None) -> Path:
    """Return the state directory whose key a command uses; raise ConfigError if there is none."""
    root = Path.home().joinpath(ROOT, mesh)
    if state is not None:
        named = root / state
        return named if not state.exists() and (named / IDENTITY).is_dir() else state
    found = sorted(root.glob(f"*/{IDENTITY}/{keys.KEY_FILE}"))
    if not found:
        raise ConfigError(
            f"The mesh {mesh!r} speaks TLS, and no node of it has a key below {root}: give a "
            "node's state directory with --state, or make a key with `fednode identity new`."
        )
    return found[0].parent.parent


def identity_in(state: Path, mesh: str, name: str) -> Identity:
    """Return the identity in a state directory; raise ConfigError if there is no key."""
    folder = state / IDENTITY
    if not (folder / keys.KEY_FILE).is_file():
        raise ConfigError(
            f"There is no key in {folder}: give the state directory of a node of this mesh with "
            "--state, or make one with `fednode identity new`."
        )
    return Identity(folder, mesh, name)
