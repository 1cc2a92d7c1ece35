"""Find the nodes that a command asks: an address, or names in peers.yaml; with a key for TLS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from fednode.errors import ConfigError
from fednode.observe.client import Client
from fednode.transports.address import RELAY

PEERS: Final = Path("peers.yaml")
Target = tuple[str, str]
"""Name and address of a node; the name is empty if only an address was given."""
Targets = Sequence[Target]
KEYS: Final = " If its mesh has keys, add --peers or --state."
Make = Callable[[], Client]
"""Return a client; call it on the event loop that uses the client."""


def reach(address: str | None, peers_path: Path | None, state: Path | None) -> tuple[Make, Targets]:
    """Return a client maker and the nodes to ask: one (host:port or name), or all of peers.yaml.

    Without a file and a state directory, an address is asked with a key if the peers.yaml here is
    of a mesh with TLS, and in plain text if there is none.
    """
    by_place = address is not None and ":" in address
    relayed = address is not None and address.startswith(f"{RELAY}:")
    if by_place and peers_path is None and state is None and not relayed and not PEERS.exists():
        assert address is not None
        return partial(Client, hint=KEYS), [("", address)]
    if address is None and peers_path is None and not PEERS.exists():
        raise ConfigError(
            "There is no peers.yaml here: give the address of a node (host:port), or --peers FILE "
            "for all nodes of a mesh."
        )
    from fednode.app.network import client_of, places_of
    from fednode.settings.peers import load_peers

    peers = load_peers(peers_path or PEERS)
    if address is None and not peers.peers:
        raise ConfigError(
            f"{peers_path or PEERS} lists no nodes, because they enrol with an introducer: give "
            "the address of a node, host:port."
        )

    def make() -> Client:
        return client_of(peers, state)

    if address is None:
        return make, list(places_of(peers, state).items())
    if by_place:
        return make, [("", address)]
    if address not in (known := [peer.name for peer in peers.peers]):
        raise ConfigError(
            f"No peer is called {address!r} in {peers_path or PEERS}; there are "
            f"{', '.join(known)}: give one of these names, or an address as host:port."
        )
    return make, [(address, places_of(peers, state)[address])]
