"""Connect a node to its mesh: its identity, the members that it knows, its transport."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fednode.app.peer_cache import FILE as PEERS
from fednode.app.peer_cache import PeerCache
from fednode.app.plan import NodePlan
from fednode.app.sponsor import Sponsor
from fednode.core.events import Record
from fednode.core.types import MemberUpdate
from fednode.errors import IdentityError
from fednode.identity import keys
from fednode.identity.identity import IDENTITY, REVOKED_FILE, NodeIdentity
from fednode.identity.roster import Roster
from fednode.observe.telemetry import Refusals
from fednode.runtime.members import Listed, MemberDirectory
from fednode.settings.peers import Peers
from fednode.transports.connection_limiter import CALLS_S
from fednode.transports.grpc import GrpcTransport
from fednode.transports.relay_service import RelayService

PROXY: Final = "FEDNODE_PROXY"
"""The setting `proxy` as a variable, which commands without a node.yaml read."""
LOG: Final = logging.getLogger("fednode")


@dataclass(slots=True)
class Mesh:
    """A node's place in its mesh, before it listens.

    members: who may send what; the roster itself, or in a mesh without keys the names of
    peers.yaml. identity, roster, sponsor, cache: None without keys. relay: on this node's port, if
    it serves as one. contacts: members to greet at the start, and revocations to tell.
    """

    plan: NodePlan
    members: MemberDirectory
    transport: GrpcTransport
    refusals: Refusals
    identity: NodeIdentity | None = None
    roster: Roster | None = None
    sponsor: Sponsor | None = None
    cache: PeerCache | None = None
    relay: RelayService | None = None
    contacts: list[MemberUpdate] = field(default_factory=list)

    @property
    def id(self) -> str:
        return "" if self.identity is None else self.identity.id


def connect(plan: NodePlan) -> Mesh:
    """Build a node's identity, roster and transport: plain text on loopback, or mutual TLS.

    Raise IdentityError if the node has no certificate or a revoked key, StateError if what it has
    stored cannot be used.
    """
    refusals, peers = Refusals(), plan.peers
    if peers.insecure:
        names = frozenset(peer.name for peer in peers.peers)
        return Mesh(plan, Listed(names), GrpcTransport(), refusals)
    identity = NodeIdentity(plan.state)
    roster, cache, contacts = roster_in(plan.state, peers)
    if not identity.own().chain:
        raise IdentityError(
            f"This node, {plan.name!r}, has no certificate: ask for a link and run `fednode join "
            "LINK` in the folder that holds the folder of its settings."
        )
    if identity.name != plan.name:
        raise IdentityError(
            f"The certificate in {plan.state / IDENTITY} is for {identity.name!r}, and this node "
            f"is {plan.name!r}: give the state directory of {plan.name!r} with --state."
        )
    if text := revoked(roster, identity):
        raise IdentityError(text)
    if fault := roster.explain(identity.own().chain):
        raise IdentityError(
            f"The certificate of this node, {plan.name!r}, cannot be used: {fault}. If this "
            "machine's clock is right, ask for a new link: `fednode reset "
            "--all` and then `fednode join LINK` make the node a member again."
        )

    def say(kind: str, text: str, bad: bool) -> None:
        refusals.show(Record(kind, text, "warning" if bad else "info"))

    transport = GrpcTransport(
        identity.own,
        roster,
        [relay for relay in peers.relays if relay.name != plan.name],
        say=say,
        note=refusals.note,
        proxy=plan.settings.proxy,
        calls_s=max(CALLS_S, 1.2 * plan.settings.limits.messages_s),  # above the quota of messages
    )
    sponsor = Sponsor(plan, identity, roster, refusals)
    transport.add_service(sponsor.register)
    relay = RelayService(roster) if plan.settings.relay.serve else None
    if relay is not None:
        transport.add_service(relay.register)
    return Mesh(
        plan, roster, transport, refusals, identity, roster, sponsor, cache, relay, contacts
    )


def roster_in(state: Path, peers: Peers) -> tuple[Roster, PeerCache, list[MemberUpdate]]:
    """Return the roster of a state directory, its file of members, and news of whom it knows.

    The news is of members, and of keys that were revoked, which the node may not have told yet.
    Members are loaded first, because those stay whose sponsor is revoked. Raise StateError if a
    file cannot be read, or the revocations are damaged.
    """
    listed = [peer.name for peer in peers.peers]
    roster = Roster(peers.mesh, keys.read_public(str(peers.mesh_key)), listed)
    cache = PeerCache(state / IDENTITY / PEERS)
    members = cache.load(roster)
    revoked = roster.keep_in(state / IDENTITY / REVOKED_FILE)
    holding = [news for news in members if roster.id_of(news.name) == news.id]
    return roster, cache, holding + revoked


def revoked(roster: Roster | None, identity: NodeIdentity | None) -> str:
    """Return that a node's key was revoked; "" as far as the node knows that it was not."""
    if roster is None or identity is None or not roster.is_revoked(identity.id):
        return ""
    return (
        f"The mesh {roster.mesh!r} revoked the key of this node, {identity.name!r}: ask for a new "
        "link. `fednode reset --all` and then `fednode join LINK` make it a member again."
    )
