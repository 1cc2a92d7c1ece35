"""peers.yaml: the members of a mesh, their addresses, and the keys by which they are known."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from fednode.core.settings import STRICT
from fednode.errors import AddressError, ConfigError, IdentityError
from fednode.identity.keys import read_group, read_public
from fednode.settings.read import NAME, NAME_RULE, NAME_VARIABLE, Source, checked, read_yaml
from fednode.transports.address import RELAY, parse

RELAYS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class PeerEntry:
    """One node of the mesh."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    name: str
    """Unique in the mesh; small letters, digits and hyphens."""
    address: str
    """host:port at which the other nodes reach it; `relay` for a node that takes no connections
    and is reached through the relays."""
    id: str | None = None
    """The fingerprint of its key, as `fednode identity new` prints it. Not with `insecure`."""


@dataclass(frozen=True, slots=True)
class RelayEntry:
    """A relay, through which nodes reach each other that take no connections."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    address: str
    """host:port at which the nodes reach it."""
    id: str
    """The fingerprint of its key, as `fednode relay key` prints it."""


@dataclass(frozen=True, slots=True)
class Peers:
    """The mesh (peers.yaml), the same file on every node."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    mesh: str
    """The mesh's name. Nodes of another mesh are refused, whatever they send."""
    peers: tuple[PeerEntry, ...] = ()
    """All nodes, in the same order everywhere: data.partition goes by it."""
    insecure: bool = False
    """true: nodes speak plain text and believe every name, on loopback addresses only. Without it
    they speak mutual TLS, and each node needs an id, or there must be a mesh_key."""
    mesh_key: str | None = None
    """A public key. A node with a lease that this key signed belongs to the mesh, listed below or
    not (docs/membership.md)."""
    introducer: str | None = None
    """host:port at which a node without a lease asks for one, with the token in FEDNODE_TOKEN.
    Needs mesh_key."""
    sponsors: tuple[str, ...] = ()
    """Names of listed nodes that admit newcomers and renew leases (docs/first-mesh.md); `fednode
    found` and `fednode join` write them. Needs mesh_key."""
    relays: tuple[RelayEntry, ...] = ()
    """Relays, at most four, at which all nodes wait to be called (docs/networks.md). Not with
    `insecure`."""
    revoked: tuple[str, ...] = ()
    """Revocations of keys, as `fednode introducer revoke` prints them. Needs mesh_key."""

    @property
    def grows(self) -> bool:
        """Whether nodes join that peers.yaml does not list."""
        return self.introducer is not None or bool(self.sponsors)

    def entry(self, name: str) -> PeerEntry:
        """Return the entry of a name; raise ConfigError if there is none."""
        for peer in self.peers:
            if peer.name == name:
                return peer
        known = [peer.name for peer in self.peers]
        raise ConfigError(
            f"No peer is called {name!r} in peers.yaml; there are {', '.join(known)}: give one of "
            f"them with --name or {NAME_VARIABLE}."
        )


def load_peers(path: Path) -> Peers:
    """Return the content of peers.yaml; raise ConfigError with all faults in one text."""
    source = read_yaml(path)
    peers, faults = checked(Peers, source), list[str]()
    if not NAME.fullmatch(peers.mesh):
        faults.append(f"{source.at(['mesh'])}: mesh is {peers.mesh!r}; {NAME_RULE}")
    if not peers.peers and peers.introducer is None:
        text = "list at least this node, or name an introducer"
        faults.append(f"{source.at(['peers'])}: peers is empty; {text}.")
    seen: dict[str, str] = {}
    for number, peer in enumerate(peers.peers):
        where = source.at(["peers", str(number)])
        if not NAME.fullmatch(peer.name):
            faults.append(f"{where}: the name {peer.name!r} is not allowed; {NAME_RULE}")
        faults += address_faults(where, peer.name, peer.address, peers.insecure)
        faults += _key_faults(where, peer, peers)
        for key in ("name", "address", "id"):
            what = getattr(peer, key)
            if what in seen:
                text = f"the {key} {what!r} stands in two entries"
                faults.append(f"{where}: {text}, also in {seen[what]}; they must differ.")
            elif what and what != RELAY:
                seen[what] = where.rpartition(", ")[2]
    faults += _mesh_key_faults(source, peers)
    faults += _relay_faults(source, peers)
    if faults:
        raise ConfigError("\n".join(faults))
    return peers


def _relay_faults(source: Source, peers: Peers) -> list[str]:
    faults, seen = list[str](), set[str]()
    where = source.at(["relays"])
    if peers.relays and peers.insecure:
        faults.append(
            f"{where}: relays carry TLS, and with `insecure: true` nodes speak plain text: remove "
            "one of the two."
        )
    if len(peers.relays) > RELAYS_MAX:
        count = len(peers.relays)
        faults.append(f"{where}: there are {count} relays; list at most {RELAYS_MAX}.")
    for number, relay in enumerate(peers.relays):
        at = source.at(["relays", str(number)])
        faults += address_faults(at, "a relay", relay.address, False)
        if relay.address == RELAY:
            faults.append(f"{at}: a relay's address is host:port, and this says {RELAY!r}.")
        if relay.address in seen:
            faults.append(f"{at}: the relay {relay.address} stands in two entries.")
        seen.add(relay.address)
        try:
            read_group(relay.id)
        except IdentityError as fault:
            faults.append(f"{at}: the id of the relay {relay.address} is wrong: {fault}.")
    relayed = [peer.name for peer in peers.peers if peer.address == RELAY]
    if relayed and not peers.relays and not peers.insecure:
        faults.append(
            f"{source.at(['peers'])}: {relayed[0]!r} has the address {RELAY!r}, and no relay is "
            "listed: add `relays`, or give host:port."
        )
    return faults


def _key_faults(where: str, peer: PeerEntry, peers: Peers) -> list[str]:
    if peer.id is not None:
        try:
            read_group(peer.id)
        except IdentityError as fault:
            return [f"{where}: the id of {peer.name!r} is wrong: {fault}."]
    elif not peers.insecure and peers.mesh_key is None:
        return [
            f"{where}: {peer.name!r} has no id, and there is no mesh_key whose leases could give "
            "it one: add the id that `fednode identity show` prints on that machine. Only a mesh "
            "on loopback can do without, with `insecure: true`."
        ]
    return []


def _mesh_key_faults(source: Source, peers: Peers) -> list[str]:
    faults: list[str] = []
    if peers.mesh_key is not None:
        try:
            read_public(peers.mesh_key)
        except IdentityError as fault:
            faults.append(f"{source.at(['mesh_key'])}: mesh_key is wrong: {fault}.")
    elif peers.grows or peers.revoked:
        what = "introducer" if peers.introducer is not None else "revoked"
        what = "sponsors" if peers.sponsors else what
        faults.append(f"{source.at([what])}: {what} needs the mesh_key that signs for it.")
    if peers.insecure and peers.mesh_key is not None:
        where = source.at(["insecure"])
        faults.append(f"{where}: insecure is true, so mesh_key would mean nothing: remove one.")
    if peers.introducer is not None:
        faults += address_faults(source.at(["introducer"]), "introducer", peers.introducer, False)
    for name in peers.sponsors:
        if all(peer.name != name for peer in peers.peers):
            where = source.at(["sponsors"])
            faults.append(
                f"{where}: the sponsor {name!r} is not listed under peers: add its entry."
            )
    return faults


def address_faults(where: str, name: str, address: str, insecure: bool = True) -> list[str]:
    """Return what is wrong with an address: not host:port, or plain text beyond loopback."""
    try:
        endpoint = parse(address)
    except AddressError as fault:
        return [f"{where}: {fault}."]
    if endpoint.relayed and not insecure:
        return []
    if insecure and not endpoint.loopback:
        return [
            f"{where}: the address {address} of {name!r} leaves this machine, and with `insecure: "
            "true` nodes speak plain text; use 127.0.0.1, [::1] or localhost, or give ids."
        ]
    if endpoint.port == 0:
        return [f"{where}: the address {address} of {name!r} has port 0; give one from 1 to 65535."]
    return []


def which_am_i(
    peers: Peers, name: str | None, environment: Mapping[str, str], advertise: str | None = None
) -> str:
    """Return the node's own name: --name, then FEDNODE_NAME, then the host's name.

    The name may be missing in peers.yaml if there is a mesh key, whose lease can name the node, and
    `advertise` gives its address. Otherwise raise ConfigError.
    """
    chosen = name or environment.get(NAME_VARIABLE) or socket.gethostname()
    listed = any(peer.name == chosen for peer in peers.peers)
    if peers.mesh_key is None or listed:
        return peers.entry(chosen).name
    if not NAME.fullmatch(chosen):
        raise ConfigError(f"This node's name is {chosen!r}; {NAME_RULE}")
    if advertise is None:
        raise ConfigError(
            f"peers.yaml does not list {chosen!r}, so it must be said where others reach it: set "
            "advertise to host:port."
        )
    return chosen
