"""Make invitations, decide on sites that wait, and issue certificates for nodes of one owner."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fednode.app.node_yaml import mesh_text
from fednode.app.plan import NodePlan
from fednode.enrolment import invitation as links
from fednode.enrolment.ledger import Ledger
from fednode.errors import ConfigError
from fednode.identity import keys
from fednode.identity.certificates import TOKEN_BYTES, Authority
from fednode.identity.identity import IDENTITY, NodeIdentity, keep_identity_private
from fednode.identity.roster import Roster
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import named
from fednode.storage.disk import put
from fednode.transports.address import RelayEntry

DAYS: Final = 7
"""How long a link can be used."""


def link_for(site: str, plan: NodePlan, ledger: Ledger, approve: bool = False) -> str:
    """Return a new link for a site, good for DAYS; the earlier link of the site ends.

    approve: the operator accepts the key of the site first. Raise ConfigError if the site cannot be
    invited.
    """
    site = named("SITE", site)
    if site == plan.name:
        raise ConfigError(f"SITE is {site!r}, which is this node's own name: choose another.")
    token = secrets.token_bytes(TOKEN_BYTES)
    invitation = links.Invitation(
        mesh=plan.peers.mesh,
        mesh_key=str(plan.peers.mesh_key),
        token=token,
        site=site,
        sponsor=plan.name,
        address=plan.address,
        relays=plan.peers.relays[: links.RELAYS_MAX],
    )
    key = Authority.invitation(token).key.public_key()
    ledger.invite(site, keys.point_of(key), DAYS, approve)
    return links.encode(invitation)


def issue(
    folder: Path, plan: NodePlan, authority: Authority, ledger: Ledger, nodes: Mapping[str, str]
) -> None:
    """Write a folder for each node: its key, its certificate, and a peers.yaml that lists them all.

    authority: the sponsor's, or the mesh key's. nodes: addresses by name; relays that peers.yaml
    lists are among them. A node that has its folder gets a new certificate for the key there; this
    node itself gets a copy of its own key. Nobody needs to run. Raise ConfigError for a name that
    another key has, and StateError for a folder in which other users may write.
    """
    mesh, mesh_key = plan.peers.mesh, str(plan.peers.mesh_key)
    roster = Roster(mesh, keys.read_public(mesh_key))
    relays = {relay.name: relay.address for relay in plan.peers.relays}
    relays = {name: nodes.get(name, address) for name, address in relays.items()}
    peers = {peer.name: peer.address for peer in plan.peers.peers} | dict(nodes)
    listed = tuple(PeerEntry(*entry) for entry in peers.items() if entry[0] not in relays)
    doors = tuple(RelayEntry(*entry) for entry in relays.items())
    text = mesh_text(Peers(mesh, listed, mesh_key=mesh_key, relays=doors))
    for name in nodes:
        own = folder / name
        if name == plan.name and not (own / IDENTITY / keys.KEY_FILE).exists():
            keys.store(own / IDENTITY / keys.KEY_FILE, NodeIdentity(plan.state).key)
        keep_identity_private(own)  # a key there may be somebody else's
        identity = NodeIdentity.create(own)
        ledger.record(name, identity.id)
        identity.take_certificate(authority.node(name, identity.key.public_key()), roster)
        put(own / "peers.yaml", text, "folder", for_all=True)


def settled(name: str, good: bool) -> str:
    """Return what follows of an operator's decision on a site."""
    if good:
        return f"{name} may join now: it runs the same `fednode join` again."
    return f"{name} was refused, and its link has ended."
