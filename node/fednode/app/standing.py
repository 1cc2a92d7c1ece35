"""Whether a node's key is still a member's: what it has heard of its own revocation."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from fednode.app.network import IDENTITY, KEPT, NodeNetwork, trust_of
from fednode.errors import FednodeError, IdentityError
from fednode.identity.identity import Identity
from fednode.identity.keys import KEY_FILE
from fednode.identity.trust import Believes, Trust
from fednode.settings.peers import Peers

REVOKED: Final = (
    "The mesh {mesh!r} revoked the key of this node, {name!r}: ask for a new link. `fednode leave "
    "{name} --forget` and then `fednode join LINK` make it a member again."
)

NO_LEASE: Final = (
    "This node, {name!r}, has no lease: ask for a new link and run `fednode join LINK` in the "
    "folder that holds the folder of its settings."
)


def lost(trust: Believes, identity: Identity) -> str:
    """Return that a node's key was revoked; "" as far as the node knows that it was not."""
    if not isinstance(trust, Trust) or not trust.lost(identity.id, identity.proof):
        return ""
    return REVOKED.format(mesh=identity.mesh, name=identity.name)


def lost_in(state: Path, peers: Peers, name: str) -> str:
    """Return that the key in a state directory was revoked; "" as far as the node knows not."""
    folder = state / IDENTITY
    if peers.insecure or not (folder / KEY_FILE).is_file():
        return ""
    with contextlib.suppress(FednodeError):  # whoever runs the node is told
        trust = trust_of(peers)
        trust.keep_in(folder / KEPT)
        return lost(trust, Identity(folder, peers.mesh, name))
    return ""


def lease_end(state: Path) -> str:
    """Return that the lease in a state directory has ended, and when; "" if it has not."""
    folder = state / IDENTITY
    if not (folder / KEY_FILE).is_file():
        return ""
    with contextlib.suppress(FednodeError):  # whoever runs the node is told
        return Identity(folder, "", "").lease_end()
    return ""


def require_member(mesh: NodeNetwork) -> None:
    """Raise IdentityError if a node knows that its key was revoked, or cannot get a lease."""
    if text := lost(mesh.trust, mesh.identity):
        raise IdentityError(text)
    peers, name = mesh.plan.peers, mesh.plan.name
    by_link = bool(peers.sponsors) and peers.introducer is None and not mesh.plan.settings.token
    listed = any(peer.id for peer in peers.peers if peer.name == name)
    founder = mesh.admission is not None and bool(mesh.admission.right)
    if by_link and not (listed or founder) and mesh.identity.lease is None:
        raise IdentityError(NO_LEASE.format(name=name))
