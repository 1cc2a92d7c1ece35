"""What commands need to talk to nodes: a client with a node's key, and where nodes are asked."""

from __future__ import annotations

import os
from pathlib import Path

from fednode.app.mesh import PROXY, learning, relays_of, roster_in
from fednode.app.plan import NodePlan
from fednode.app.saved import ROOT, state_here
from fednode.errors import ConfigError
from fednode.identity import keys
from fednode.identity.identity import IDENTITY, NodeIdentity
from fednode.observe.client import Client
from fednode.settings.peers import Peers
from fednode.settings.read import read_yaml
from fednode.storage.store import SETTINGS
from fednode.transports.address import asked_at
from fednode.transports.base import Address
from fednode.transports.grpc import GrpcTransport


def client_of(peers: Peers | None, state: Path | None, timeout_s: float = 3.0) -> Client:
    """Return a client for the nodes of a mesh, with a node's key if the mesh uses TLS.

    state: directory of the key, or name of a node of this machine; None uses any node's key of this
    machine, because every member may ask.
    """
    if peers is None or peers.insecure:
        return Client(timeout_s)
    folder = key_folder(peers.mesh, state)
    identity, (roster, _, _) = NodeIdentity(folder), roster_in(folder, peers)
    if not identity.own().chain:
        raise ConfigError(
            f"The node of {folder} has no certificate yet: run `fednode join LINK`, or give "
            "another node's state directory with --state."
        )
    proxy = os.environ.get(PROXY)
    transport = GrpcTransport(
        identity.own,
        roster,
        relays_of(peers, identity, roster, proxy),
        learn=learning(roster, identity.id),
        proxy=proxy,
    )
    return Client(timeout_s, transport, shown=lambda: roster.explain(identity.own().chain))


def places_of(peers: Peers) -> dict[str, Address]:
    """Return where a command asks each node of peers.yaml: its address, or relay:NAME."""
    return {peer.name: asked_at(peer.address, peer.name) for peer in peers.peers}


def own_places(mesh: str, state: Path | None) -> dict[str, Address]:
    """Return where a command asks the nodes of a mesh on this machine that say where they are.

    A node that peers.yaml does not list says so by `advertise`. state: of the only node to look at.
    """
    root = Path.home().joinpath(ROOT, mesh)
    folders = sorted(file.parent for file in root.glob(f"*/{SETTINGS}"))
    places = dict[str, Address]()
    for folder in folders if state is None else [key_folder(mesh, state)]:
        if (folder / SETTINGS).is_file():
            tree = read_yaml(folder / SETTINGS).tree
            name, address = str(tree.get("name") or ""), str(tree.get("advertise") or "")
            if name and address:
                places[name] = asked_at(address, name)
    return places


def place_of(plan: NodePlan) -> Address:
    """Return where a command asks the node of a plan."""
    return asked_at(plan.address, plan.name)


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
            "node's state directory with --state."
        )
    return key_files[0].parent.parent
