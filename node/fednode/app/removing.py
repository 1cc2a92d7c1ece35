"""Revoke the key of a site: with the mesh key, or as the sponsor that let the site in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fednode.admission.register import Register
from fednode.app.admission import FOLDER, register_of
from fednode.app.founding import mesh_key_file
from fednode.app.network import IDENTITY
from fednode.app.plan import NodePlan
from fednode.errors import ConfigError, IdentityError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.identity import Identity
from fednode.identity.lease import STAY_MAX, Statement
from fednode.settings.faults import meant
from fednode.wire.gen import status_pb2


@dataclass(frozen=True, slots=True)
class Removed:
    """What became of a site. line: the revocation. stay, out: sites to which it gave leases."""

    line: str
    stay: tuple[str, ...]
    out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What a node knows of a site. lease: the proof that made it a member; b"" if none is known."""

    id: str
    lease: bytes = b""

    @property
    def giver(self) -> str:
        """The id of the sponsor that gave the lease; "" if it was none."""
        return self.statement.signer if self.statement is not None else ""

    @property
    def statement(self) -> Statement | None:
        """What the lease says; None if there is none, or nothing that this version knows."""
        try:
            return leases.peek(self.lease) if self.lease else None
        except IdentityError:
            return None


def sites(plan: NodePlan, register: Register, peers: list[status_pb2.Peer]) -> dict[str, Known]:
    """Return the other sites that a node can name: of peers.yaml, admitted here, or met."""
    listed = {peer.name: Known(peer.id) for peer in plan.peers.peers if peer.id}
    admitted = {
        node.name: Known(node.id, leases.disarm(node.lease)) for node in register.enrolled()
    }
    met = {peer.name: Known(peer.id, bytes(peer.lease)) for peer in peers if peer.id}
    return {name: one for name, one in (listed | admitted | met).items() if name != plan.name}


def revoker(plan: NodePlan, identity: Identity) -> tuple[Register, bool]:
    """Return the register that revokes, and whether it signs with the mesh key."""
    file = mesh_key_file(plan.peers.mesh)
    if not file.exists():
        return register_of(plan.state, identity), False
    key = keys.load(file)
    folder, mesh = plan.state / FOLDER, plan.peers.mesh
    return Register(folder, mesh, lambda statement: leases.sign(key, statement)), True


@dataclass(frozen=True, slots=True)
class Removable:
    """A site that this machine may remove. id: of its key. given: the leases that it gave."""

    site: str
    id: str
    given: Mapping[str, bytes]
    register: Register


def removable(plan: NodePlan, site: str, peers: list[status_pb2.Peer]) -> Removable:
    """Return what is known of a site that is to be removed; nothing is changed yet.

    peers: of this node, with their leases; none if it does not run. Raise ConfigError if this
    machine may not remove the site.
    """
    identity = Identity(plan.state / IDENTITY, plan.peers.mesh, plan.name)
    register, has_mesh_key = revoker(plan, identity)
    if site == plan.name:
        raise ConfigError(
            f"{site!r} is this node itself, and removes only others: `fednode leave {site} "
            "--forget` lets it leave the mesh for good."
        )
    known = sites(plan, register, peers)
    if site not in known:
        others = f"it knows {', '.join(sorted(known)) or 'no other site'}."
        raise ConfigError(
            f"{plan.name} knows no site {site!r}; {meant(site, sorted(known)) or others}"
        )
    if not has_mesh_key and known[site].giver != identity.id:
        raise ConfigError(
            f"{site!r} has its lease from {_giver(known, site)}, and {plan.name} removes only the "
            "sites that it admitted: ask that site, or the founder, who has the mesh key."
        )
    return Removable(site, known[site].id, _given(known, site), register)


def remove(found: Removable, everything: bool = False) -> Removed:
    """Revoke the key of a site and end its links; return what it gave to others.

    everything: end the leases that the site gave as a sponsor, too.
    """
    site, given = found.site, found.given
    stay = {} if everything else dict(list(given.items())[:STAY_MAX])
    line = found.register.revoke(site, found.id, tuple(stay.values()))
    found.register.tokens.end_links(site)
    return Removed(line, tuple(stay), tuple(name for name in given if name not in stay))


def _given(known: Mapping[str, Known], sponsor: str) -> dict[str, bytes]:
    """Return the leases that a site gave to others, by name."""
    return {
        name: known[name].lease
        for name in sorted(known)
        if name != sponsor and known[name].giver == known[sponsor].id
    }


def _giver(known: Mapping[str, Known], site: str) -> str:
    """Return who gave a site its lease, in words."""
    giver = known[site].giver
    named = next((name for name, other in known.items() if other.id == giver), "")
    if named:
        return repr(named)
    return f"the sponsor {giver}" if giver else "the founder, or peers.yaml"
