"""peers.yaml: a mesh, the key that it trusts, and the addresses of its members and relays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from fednode.core.settings import STRICT
from fednode.errors import AddressError, ConfigError, IdentityError
from fednode.identity.keys import read_public
from fednode.settings.read import NAME, NAME_RULE, NAME_VARIABLE, Source, checked, read_yaml
from fednode.transports.address import RELAY, RelayEntry, parse

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


@dataclass(frozen=True, slots=True)
class Peers:
    """The mesh (peers.yaml), the same file on every node."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    mesh: str
    """The mesh's name. Nodes of another mesh are refused, whatever they send."""
    peers: tuple[PeerEntry, ...] = ()
    """The nodes to begin with; data.partition goes by their order. Members that are not listed are
    met through these."""
    insecure: bool = False
    """true: nodes speak plain text and believe every name, on loopback addresses only. Without it
    they speak mutual TLS, and there must be a mesh_key."""
    mesh_key: str | None = None
    """The public half of the mesh key. A node belongs to the mesh if its certificate leads to this
    key, listed below or not (docs/membership.md)."""
    relays: tuple[RelayEntry, ...] = ()
    """Relays, at most four, at which all nodes wait to be called (docs/networks.md). Not with
    `insecure`."""

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
    if not peers.peers:
        faults.append(f"{source.at(['peers'])}: peers is empty; list at least this node.")
    faults += _entry_faults(source, "peers", peers.peers, peers.insecure)
    faults += _mesh_key_faults(source, peers)
    faults += _relay_faults(source, peers)
    if faults:
        raise ConfigError("\n".join(faults))
    return peers


def _entry_faults(
    source: Source, section: str, entries: Sequence[PeerEntry | RelayEntry], insecure: bool
) -> Iterator[str]:
    """Yield what is wrong with names and addresses, which must differ."""
    seen: dict[str, str] = {}
    for number, entry in enumerate(entries):
        where = source.at([section, str(number)])
        if not NAME.fullmatch(entry.name):
            yield f"{where}: the name {entry.name!r} is not allowed; {NAME_RULE}"
        yield from address_faults(where, entry.name, entry.address, insecure)
        for key in ("name", "address"):
            what = getattr(entry, key)
            if what in seen:
                text = f"the {key} {what!r} stands in two entries, also in {seen[what]}"
                yield f"{where}: {text}; they must differ: a node has one name and one address."
            elif what != RELAY:
                seen[what] = where.rpartition(", ")[2]


def _relay_faults(source: Source, peers: Peers) -> Iterator[str]:
    where = source.at(["relays"])
    if peers.relays and peers.insecure:
        yield (
            f"{where}: relays carry TLS, and with `insecure: true` nodes speak plain text: remove "
            "one of the two."
        )
    if len(peers.relays) > RELAYS_MAX:
        count = len(peers.relays)
        yield f"{where}: there are {count} relays; list at most {RELAYS_MAX}."
    yield from _entry_faults(source, "relays", peers.relays, insecure=False)
    if RELAY in (relay.address for relay in peers.relays):
        yield f"{where}: a relay's address is host:port, and this says {RELAY!r}."
    relayed = [peer.name for peer in peers.peers if peer.address == RELAY]
    if relayed and not peers.relays and not peers.insecure:
        yield (
            f"{source.at(['peers'])}: {relayed[0]!r} has the address {RELAY!r}, and no relay is "
            "listed: add `relays`, or give host:port."
        )


def _mesh_key_faults(source: Source, peers: Peers) -> list[str]:
    if peers.insecure and peers.mesh_key is not None:
        where = source.at(["insecure"])
        return [f"{where}: insecure is true, so mesh_key would mean nothing: remove one."]
    if peers.mesh_key is None:
        text = (
            "the mesh has no mesh_key, by which its nodes know each other: found it with `fednode "
            "init MESH`. Only a mesh on loopback can do without, with `insecure: true`."
        )
        return [] if peers.insecure else [f"{source.at(['mesh'])}: {text}"]
    try:
        read_public(peers.mesh_key)
    except IdentityError as fault:
        return [f"{source.at(['mesh_key'])}: mesh_key is wrong: {fault}."]
    return []


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
            "true` nodes speak plain text; use 127.0.0.1, [::1] or localhost."
        ]
    if endpoint.port == 0:
        return [f"{where}: the address {address} of {name!r} has port 0; give one from 1 to 65535."]
    return []
