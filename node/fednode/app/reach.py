"""Find the nodes that a command asks: an address, a name, or all of a mesh; with a key for TLS.

A name need not stand in peers.yaml: nodes of this machine noted where they are reached, and a node
that answers names the members that it knows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from fednode.app.asking import Targets, everyone
from fednode.errors import ConfigError
from fednode.observe.client import Client
from fednode.transports.address import RELAY

PEERS: Final = Path("peers.yaml")
KEYS: Final = " If its mesh has keys, add --peers or --state."
Make = Callable[[], Client]
"""Return a client; call it on the event loop that uses the client."""


def reach(address: str | None, peers_path: Path | None, state: Path | None) -> tuple[Make, Targets]:
    """Return a client maker and the nodes to ask: one (host:port or name), or all of peers.yaml.

    Without a file and a state directory, an address is asked with a key if the peers.yaml here is
    of a mesh with TLS, and in plain text if there is none. If peers.yaml lists no nodes, those of
    this machine are asked. Raise ConfigError for a name that neither is in peers.yaml nor is known
    to a node that answers.
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
    from fednode.app.client import client_of, own_places, places_of
    from fednode.settings.peers import load_peers

    file = peers_path or PEERS
    peers = load_peers(file)

    def make() -> Client:
        return client_of(peers, state)

    if address is not None and by_place:
        return make, [("", address)]
    listed = places_of(peers)
    known = own_places(peers.mesh, state) | listed
    if address is None:
        return make, list(listed.items())
    if address not in known:
        known = dict(uvloop.run(_with_members(make, list(known.items()))))
    if address not in known:
        names = ", ".join(sorted(known)) or "no names"
        raise ConfigError(
            f"No peer is called {address!r} in {file}, and no node that answers knows one; there "
            f"are {names}: give one of these names, or an address as host:port."
        )
    return make, [(address, known[address])]


async def _with_members(make: Make, known: Targets) -> Targets:
    """Return nodes, and the members that they name; only the nodes if this machine has no key."""
    try:
        client = make()
    except ConfigError:
        return known
    async with client:
        return await everyone(client, known)
