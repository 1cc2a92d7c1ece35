"""Revoke the key of a site with the mesh key, in the files of the node that tells the mesh."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.app.mesh import roster_in
from fednode.app.plan import NodePlan
from fednode.enrolment.ledger import FOLDER, Ledger
from fednode.errors import ConfigError, IdentityError
from fednode.identity.certificates import SPONSOR, Revocation, facts_in
from fednode.settings.faults import meant
from fednode.wire.gen import status_pb2


@dataclass(frozen=True, slots=True)
class Removal:
    """A site that is to be removed. admitted: sites whose certificates it signed."""

    site: str
    id: str
    admitted: tuple[str, ...]


def find_removal(plan: NodePlan, site: str, peers: Sequence[status_pb2.Peer]) -> Removal:
    """Return what is known of a site that is to be removed; nothing is changed yet.

    peers: those that the node of this machine knows; none if it does not run. Raise ConfigError if
    the site is not known, or is this node itself.
    """
    holders = Ledger(plan.state / FOLDER).read().holders.values()
    ids = {holder.name: holder.id for holder in holders}
    met = roster_in(plan.state, plan.peers)[2]
    ids |= {member.name: member.id for member in met if member.state != "revoked"}
    ids |= {peer.name: peer.id for peer in peers if peer.id}
    ids.pop(plan.name, None)
    if site == plan.name:
        raise ConfigError(
            f"{site!r} is this node itself, and removes only others: `fednode leave` and `fednode "
            "reset --all` let it leave the mesh for good."
        )
    if site not in ids:
        others = f"it knows {', '.join(sorted(ids)) or 'no other site'}."
        raise ConfigError(
            f"{plan.name} knows no site {site!r}; {meant(site, sorted(ids)) or others}"
        )
    admitted = (peer.name for peer in peers if _signer(peer) == f"{SPONSOR}{site}")
    return Removal(site, ids[site], tuple(sorted(admitted)))


def revoke(plan: NodePlan, removal: Removal, key: Ed25519PrivateKey) -> bytes:
    """Revoke the key of a site; return the proof, which the node tells at its next start, too."""
    revocation = Revocation(plan.peers.mesh, removal.site, removal.id, int(time.time()))
    proof = revocation.sign(key)
    roster_in(plan.state, plan.peers)[0].take_revocation(proof)
    Ledger(plan.state / FOLDER).forget(removal.site)
    return proof


def _signer(peer: status_pb2.Peer) -> str:
    with contextlib.suppress(IdentityError):
        return facts_in(peer.certificates).signer
    return ""
