"""Connect a node to its mesh: its identity, the members that it trusts, its transport."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from fednode.app.admission import Admission, admission_of
from fednode.app.met import FILE as MET
from fednode.app.met import Met
from fednode.app.plan import NodePlan
from fednode.app.saved import ROOT, state_here
from fednode.core.events import Record
from fednode.core.members.table import GONE, Member
from fednode.core.types import Update
from fednode.errors import (
    ConfigError,
    FednodeError,
    IdentityError,
    Refused,
    StateError,
    Unreachable,
)
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.enrol import Admitter, enrol, introducer, sponsor
from fednode.identity.identity import Identity
from fednode.identity.lease import disarm
from fednode.identity.listed import Listed
from fednode.identity.trust import Believes, Trust
from fednode.observe.client import Client
from fednode.observe.telemetry import Refusals
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import read_yaml
from fednode.storage.store import SETTINGS
from fednode.transports.address import RELAY, asked_at
from fednode.transports.base import Address
from fednode.transports.grpc import GrpcTransport
from fednode.transports.meter import Rates
from fednode.transports.opening import RelayAt
from fednode.transports.proxy import connector
from fednode.transports.refusing import Learn
from fednode.transports.relay import Relay
from fednode.transports.tls import Tls
from fednode.transports.ways import DIRECTLY, Ways

ENROL_TRIES: Final = 10
ASKED_MAX: Final = 64
"""Members that are asked for a new lease, besides the sponsors that peers.yaml names."""
ENROL_WAIT_S: Final = 3.0
IDENTITY: Final = "identity"
PROXY: Final = "FEDNODE_PROXY"
"""The setting `proxy` as a variable, which commands without a node.yaml read."""
KEPT: Final = "believed"
"""File of the revocations and key successions that this node accepted, one per line."""
SEEN: Final = "leases"
"""File of the leases of other members that this node has seen, one per line."""
RENEWAL_S: Final = 6 * 3600.0
LOG = logging.getLogger("fednode")


@dataclass(slots=True)
class NodeNetwork:
    """A node's identity, trust and transport, before it listens.

    tls: None without keys. relay: on this node's port; None if there is none. admission: of
    newcomers on this node's port; None in a mesh that does not grow. met: members with leases; None
    in a mesh without them. contacts: members to greet at the start. unrenewed: why the
    last try to renew the lease failed; "" if it did not.
    """

    plan: NodePlan
    identity: Identity
    trust: Believes
    transport: GrpcTransport
    refusals: Refusals
    tls: Tls | None = None
    relay: Relay | None = None
    admission: Admission | None = None
    met: Met | None = None
    contacts: list[Update] = field(default_factory=list)
    unrenewed: str = ""


def join(plan: NodePlan) -> NodeNetwork:
    """Build a node's identity, trust and transport: plain text on loopback, or mutual TLS.

    Raise ConfigError if the node's key is not the one in peers.yaml, StateError if the stored trust
    is damaged.
    """
    identity = Identity(plan.state / IDENTITY, plan.peers.mesh, plan.name)
    refusals = Refusals()
    if plan.peers.insecure:
        names = frozenset(peer.name for peer in plan.peers.peers)
        return NodeNetwork(plan, identity, Listed(names), GrpcTransport(), refusals)
    listed = next((peer.id for peer in plan.peers.peers if peer.name == plan.name), None)
    if listed not in {None, identity.id} and not identity.proof:
        raise ConfigError(
            f"peers.yaml gives {plan.name!r} the id {listed}, and the key in "
            f"{plan.state / IDENTITY} has {identity.id}: give the state directory that holds the "
            "listed key, or list this id on all nodes if the key was made anew on purpose."
        )
    if text := identity.clock_fault():
        LOG.warning("%s", text)
    trust = trust_of(plan.peers)
    trust.own = identity.id
    trust.keep_in(plan.state / IDENTITY / KEPT)
    trust.remember_in(plan.state / IDENTITY / SEEN)
    limits = plan.settings.limits
    rates = Rates.around(limits.messages_s, limits.megabytes_s)
    relay = relay_of(plan, trust)

    def say(kind: str, text: str, bad: bool) -> None:
        refusals.show(Record(kind, text, "warning" if bad else "info"))

    admission = admission_of(plan, identity, trust, refusals)
    ways = Ways(
        relays=relays_of(plan.peers),
        reach=plan.settings.reach,
        id_of=lambda _, who: trust.id_of(who),
        connect=connector(plan.settings.proxy),
        say=say,
        proofs=trust.revocations,
        declined=lambda id: "its key was revoked" if trust.is_revoked(id) else "",
        known=lambda: bool(listed) or identity.lease is not None,
        admits=lambda: admission is not None and admission.invites(),
        explain=trust.explain,
        learn=learning(trust, identity),
    )
    guests = None if admission is None else admission.tls
    tls = Tls(
        identity.credentials,
        trust.judge,
        refusals.note,
        rates=rates,
        ways=ways,
        relay=relay,
        guests=guests,
    )
    mesh = NodeNetwork(plan, identity, trust, GrpcTransport(tls), refusals, tls, relay, admission)
    if plan.peers.mesh_key is not None:
        mesh.met = Met(plan.state / IDENTITY / MET)
        mesh.contacts += mesh.met.remembered(trust)
    mesh.contacts += [] if admission is None else admission.remembered()
    return mesh


def require_key(plan: NodePlan) -> None:
    """Raise ConfigError if a node has a key already, by its peers.yaml, and there is none here.

    A new key would be of no use, and would suggest to put its id in the place of the true one.
    """
    listed = next((peer.id for peer in plan.peers.peers if peer.name == plan.name), None)
    folder = plan.state / IDENTITY
    if listed and not plan.peers.insecure and not (folder / keys.KEY_FILE).is_file():
        raise ConfigError(
            f"{plan.name!r} has a key already, with the id that peers.yaml gives, and it is not in "
            f"{folder}: start the node as the user who made the key, or give its state directory "
            "with --state."
        )
    by_link = bool(plan.peers.sponsors) and plan.peers.introducer is None
    if by_link and not plan.settings.token and not (folder / keys.KEY_FILE).exists():
        raise ConfigError(
            f"{plan.name!r} got its key when it joined, and there is no key in {folder}: if the "
            "state directory was moved, give it with --state, or as state_dir in node.yaml. If it "
            "is lost, ask for a new link and run `fednode join LINK` again."
        )


def learning(trust: Trust, identity: Identity) -> Learn:
    """Return what takes a proof that a node's own key was revoked, and no other proof."""

    def learn(proof: bytes) -> bool:
        with contextlib.suppress(IdentityError):
            if leases.peek(proof).id == identity.id:
                trust.take_revocation(proof)
        return trust.lost(identity.id, identity.proof)

    return learn


def relays_of(peers: Peers) -> tuple[RelayAt, ...]:
    """Return the relays of a peers.yaml."""
    return tuple(RelayAt(relay.address, relay.id) for relay in peers.relays)


def relay_of(plan: NodePlan, trust: Trust) -> Relay | None:
    """Return the relay of a node's own port; None if `relay.serve` is false."""
    if not plan.settings.relay.serve:
        return None

    def revoke(proof: bytes) -> None:
        with contextlib.suppress(IdentityError):
            trust.take_revocation(proof)

    return Relay(trust.admits, revoke, plan.settings.relay.mbit)


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


def transport_of(
    identity: Identity, trust: Trust, refusals: Refusals, ways: Ways = DIRECTLY
) -> GrpcTransport:
    """Return a mutual TLS transport that admits trusted keys and records refused connections."""
    return GrpcTransport(Tls(identity.credentials, trust.judge, refusals.note, ways=ways))


def admitters_of(plan: NodePlan, trust: Trust, members: Sequence[Member] = ()) -> list[Admitter]:
    """Return those who may give this node a lease, or renew it, in the order to ask them.

    members: any of them may have become a sponsor; a node that is none does not answer.
    """
    peers, found = plan.peers, list[Admitter]()

    def ask(name: str, address: Address) -> None:
        ways = relays_of(peers) if plan.settings.reach != "direct" else ()
        found.append(sponsor(address, partial(_is, trust, name), ways, trust.id_of(name)))

    if peers.introducer is not None and peers.mesh_key is not None:
        found.append(introducer(peers.mesh_key, peers.introducer))
    for name in peers.sponsors:
        if name != plan.name:
            ask(name, peers.entry(name).address)
    for member in members[:ASKED_MAX]:
        if member.name not in peers.sponsors and member.address:
            ask(member.name, member.address)
    return found


def _is(trust: Trust, name: str, id: str) -> bool:
    return trust.id_of(name) == id


async def get_lease(mesh: NodeNetwork) -> None:
    """Get a lease if one is wanted and somebody gives leases; try for some time.

    All who may give one are asked, also after a refusal: one of them may have lost its right. Raise
    FednodeError if that fails and the node has no lease. A node that has a lease goes on with it.
    """
    if not mesh.plan.peers.grows or not mesh.identity.wants_lease():
        return
    try:
        await _get_lease(mesh)
        mesh.unrenewed = ""
    except FednodeError as fault:
        if mesh.identity.lease is None:
            raise
        mesh.unrenewed = str(fault)
        LOG.warning("%s", lease_warning(mesh))


async def _get_lease(mesh: NodeNetwork) -> None:
    plan, trust = mesh.plan, mesh.trust
    assert isinstance(trust, Trust)
    faults = list[FednodeError]()
    if mesh.admission is not None and mesh.admission.right:
        try:
            mesh.identity.take_lease(await mesh.admission.own_lease(plan.address))
        except IdentityError as fault:  # the right has ended, or the key was revoked
            faults.append(fault)
        else:
            return
    members = () if mesh.admission is None else mesh.admission.members()
    admitters = admitters_of(plan, trust, members)
    proxy = connector(plan.settings.proxy)
    tries = ENROL_TRIES if mesh.identity.lease is None else 1
    for left in range(tries - 1, -1, -1):
        for admitter in admitters:
            try:
                enrolled = await enrol(
                    mesh.identity, admitter, plan.address, plan.settings.token or "", proxy
                )
            except (Unreachable, Refused, IdentityError) as fault:
                faults.append(fault)
                continue
            mesh.contacts += enrolled.contacts
            trust.believed("", enrolled.contacts)  # takes their leases, which tell their ids
            mesh.contacts += map(trust.take_revocation, enrolled.revocations)
            return
        refusals = [fault for fault in faults if not isinstance(fault, Unreachable)]
        if faults and (len(refusals) == len(faults) or not left):
            raise (refusals or faults)[0]
        if left and faults:
            LOG.info("%s Trying again in %g s.", faults[-1], ENROL_WAIT_S)
            faults.clear()
            await asyncio.sleep(ENROL_WAIT_S)


async def keep_lease(mesh: NodeNetwork) -> None:
    """Renew the lease before it ends, for as long as the node runs."""
    given = asyncio.Event() if mesh.admission is None else mesh.admission.given
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(given.wait(), RENEWAL_S)
        given.clear()
        if mesh.admission is not None:
            mesh.admission.remind()
        try:
            await get_lease(mesh)
        except FednodeError as fault:  # there is no lease yet
            LOG.warning("The node gets no lease: %s", fault)


def lease_warning(mesh: NodeNetwork) -> str:
    """Return until when the lease holds and who can renew it, if that failed or it ended.

    A lease is renewed in its last third, so there is nothing to say before.
    """
    try:
        lease = mesh.identity.lease
    except StateError as fault:
        return str(fault)
    if lease is None or not mesh.plan.peers.grows or not mesh.identity.wants_lease():
        return ""
    text = mesh.identity.lease_end()
    if not (mesh.unrenewed or text):
        return ""
    if not text:
        day = leases.day(lease.expires)
        text = f"The lease of this node ends on {day}, and it is not renewed."
    why = f" {mesh.unrenewed.rstrip('.')}." if mesh.unrenewed else ""
    if mesh.plan.peers.introducer is not None:
        return f"{text}{why}"
    names = ", ".join(givers(mesh)) or "no site that this node knows"
    return (
        f"{text} Those who can renew it: {names}; start one of them.{why} If all of them are lost, "
        f"the mesh key that the founder kept makes another: `fednode sponsor {mesh.plan.name} "
        "--mesh-key FILE` on this machine (docs/first-mesh.md)."
    )


def givers(mesh: NodeNetwork) -> list[str]:
    """Return the sites that can renew leases, as far as the leases say that this node knows."""
    members = () if mesh.admission is None else mesh.admission.known()
    proofs = [mesh.identity.proof, *(one.proof for one in members if one.state not in GONE)]
    found = dict.fromkeys(mesh.plan.peers.sponsors)
    for proof in filter(None, proofs):
        with contextlib.suppress(IdentityError):
            if under := leases.peek(proof).under:
                found[leases.peek(disarm(under)).name] = None
    gone = {one.name for one in members if one.state in GONE}
    return [name for name in found if name not in gone]


def client_of(peers: Peers | None, state: Path | None, timeout_s: float = 3.0) -> Client:
    """Return a client for the nodes of a mesh, with a node's key if the mesh uses TLS.

    state: directory of the key, or name of a node of this machine; None uses any node's key of this
    machine, because every member may ask.
    """
    if peers is None or peers.insecure:
        return Client(timeout_s)
    folder = key_folder(peers.mesh, state)
    identity = identity_in(folder, peers.mesh, folder.name)
    trust = trust_of(peers)
    trust.own = identity.id
    trust.keep_in(folder / IDENTITY / KEPT)
    trust.recall(folder / IDENTITY / SEEN)
    listed = {peer.address: peer.name for peer in peers.peers if peer.address != RELAY}
    ways = Ways(
        relays=relays_of(peers),
        connect=connector(os.environ.get(PROXY)),
        id_of=lambda address, who: trust.id_of(who or listed.get(address, "")),
        learn=learning(trust, identity),
    )
    return Client(timeout_s, transport_of(identity, trust, Refusals(), ways))


def places_of(peers: Peers, state: Path | None) -> dict[str, str]:
    """Return where a command asks each node of peers.yaml: its address, or relay:ID.

    The id of a node that has a lease is known if the node of the state directory has seen it.
    """
    trust, own = trust_of(peers), dict[str, str]()
    if any(peer.address == RELAY and not peer.id for peer in peers.peers):
        folder = key_folder(peers.mesh, state)
        trust.recall(folder / IDENTITY / SEEN)
        identity = identity_in(folder, peers.mesh, folder.name)
        own = {} if identity.lease is None else {identity.lease.name: identity.id}

    def place(peer: PeerEntry) -> str:
        id = own.get(peer.name) or trust.id_of(peer.name) if peer.address == RELAY else ""
        return asked_at(peer.address, id)

    return {peer.name: place(peer) for peer in peers.peers}


def own_places(mesh: str, state: Path | None) -> dict[str, str]:
    """Return where a command asks the nodes of a mesh on this machine that say where they are.

    A node that peers.yaml does not list says so by `advertise`. state: of the only node to look at.
    """
    root = Path.home().joinpath(ROOT, mesh)
    held = sorted(file.parent for file in root.glob(f"*/{SETTINGS}"))
    places = dict[str, str]()
    for folder in held if state is None else [key_folder(mesh, state)]:
        with contextlib.suppress(ConfigError):  # no such file, or no key
            tree = read_yaml(folder / SETTINGS).tree
            name, address = str(tree.get("name") or ""), str(tree.get("advertise") or "")
            if name and address:
                id = identity_in(folder, mesh, name).id if address == RELAY else ""
                places[name] = asked_at(address, id)
    return places


def place_of(plan: NodePlan) -> Address:
    """Return where a command asks the node of a plan; raise ConfigError if it has no key."""
    if plan.address != RELAY:
        return plan.address
    return asked_at(RELAY, identity_in(plan.state, plan.peers.mesh, plan.name).id)


def key_folder(mesh: str, state: Path | None) -> Path:
    """Return the state directory whose key a command uses; raise ConfigError if there is none."""
    root = Path.home().joinpath(ROOT, mesh)
    if state is not None:
        named = root / state
        return named if not state.exists() and (named / IDENTITY).is_dir() else state
    if here := state_here(mesh):
        return here
    key_files = sorted(root.glob(f"*/{IDENTITY}/{keys.KEY_FILE}"))
    if not key_files:
        raise ConfigError(
            f"The mesh {mesh!r} speaks TLS, and no node of it has a key below {root}: give a "
            "node's state directory with --state, or make a key with `fednode identity new`."
        )
    return key_files[0].parent.parent


def identity_in(state: Path, mesh: str, name: str) -> Identity:
    """Return the identity in a state directory; raise ConfigError if there is no key."""
    folder = state / IDENTITY
    if not (folder / keys.KEY_FILE).is_file():
        raise ConfigError(
            f"There is no key in {folder}: give the state directory of a node of this mesh with "
            "--state, or make one with `fednode identity new`."
        )
    return Identity(folder, mesh, name)
