"""How commands ask nodes: which nodes they mean, with which key, one or several at once.

A name need not stand in peers.yaml: a node that answers names the members that it knows. Settings
and keys are imported where they are needed, so that `fednode status ADDRESS` starts fast.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import uvloop

from fednode.core.members.table import GONE
from fednode.errors import ConfigError, FednodeError, IdentityError
from fednode.observe.client import Client
from fednode.transports.address import RELAY, asked_at
from fednode.transports.base import Address
from fednode.wire.gen import status_pb2

if TYPE_CHECKING:
    from fednode.app.plan import NodePlan
    from fednode.settings.peers import Peers

PEERS: Final = Path("peers.yaml")
KEYS: Final = " If its mesh has keys, add --peers or --state."
MORE_MAX: Final = 128
"""Nodes that are asked although peers.yaml does not list them."""
Make = Callable[[], Client]
"""Returns a client; call it on the event loop that uses the client."""
Target = tuple[str, Address]
"""Name and address of a node; the name is empty if only an address was given."""
Targets = Sequence[Target]
Replies = list[tuple[Target, status_pb2.StatusReply | None]]
Answer = TypeVar("Answer")


# Which nodes, and with which key ------------------------------------------------------------------


def reach(address: str | None, peers_path: Path | None, state: Path | None) -> tuple[Make, Targets]:
    """Return a client maker and the nodes to ask: one (host:port or name), or all of peers.yaml.

    Without a file and a state directory, an address is asked with a key if the peers.yaml here is
    of a mesh with TLS, and in plain text if there is none. Raise ConfigError for a name that
    neither is in peers.yaml nor is known to a node that answers.
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
    from fednode.settings.peers import load_peers

    file = peers_path or PEERS
    peers = load_peers(file)
    make = partial(client_of, peers, state)
    if address is not None and by_place:
        return make, [("", address)]
    known = places_of(peers)
    if address is None:
        return make, list(known.items())
    if address not in known:
        with contextlib.suppress(ConfigError):  # this machine may have no key to ask with
            known = dict(ask(make, lambda client: everyone(client, list(known.items()))))
    if address not in known:
        names = ", ".join(sorted(known)) or "no names"
        raise ConfigError(
            f"No peer is called {address!r} in {file}, and no node that answers knows one; there "
            f"are {names}: give one of these names, or an address as host:port."
        )
    return make, [(address, known[address])]


def client_of(peers: Peers | None, state: Path | None, timeout_s: float = 3.0) -> Client:
    """Return a client for the nodes of a mesh, with a node's key if the mesh uses TLS.

    state: directory of the key, or name of a node of this machine; None uses any node's key of this
    machine, because every member may ask. Raise IdentityError if the mesh revoked the key.
    """
    if peers is None or peers.insecure:
        return Client(timeout_s)
    from fednode.app.mesh import PROXY, revoked, roster_in
    from fednode.identity.identity import NodeIdentity
    from fednode.transports.grpc import GrpcTransport

    folder = key_folder(peers.mesh, state)
    identity, (roster, _, _) = NodeIdentity(folder), roster_in(folder, peers)
    if not identity.own().chain:
        raise ConfigError(
            f"The node of {folder} has no certificate yet: run `fednode join LINK`, or give "
            "another node's state directory with --state."
        )
    if text := revoked(roster, identity):
        raise IdentityError(text)
    relays = [relay for relay in peers.relays if relay.name != identity.name]
    transport = GrpcTransport(identity.own, roster, relays, proxy=os.environ.get(PROXY))
    return Client(timeout_s, transport, shown=lambda: roster.explain(identity.own().chain))


def places_of(peers: Peers) -> dict[str, Address]:
    """Return where a command asks each node of peers.yaml: its address, or relay:NAME."""
    return {peer.name: asked_at(peer.address, peer.name) for peer in peers.peers}


def place_of(plan: NodePlan) -> Address:
    return asked_at(plan.address, plan.name)


def key_folder(mesh: str, state: Path | None) -> Path:
    """Return the state directory whose key a command uses; raise ConfigError if there is none."""
    from fednode.app.state_dir import ROOT, state_here
    from fednode.identity.identity import IDENTITY
    from fednode.identity.keys import KEY_FILE

    root = Path.home().joinpath(ROOT, mesh)
    if state is not None:
        named = root / state
        return named if not state.exists() and (named / IDENTITY).is_dir() else state
    if here := state_here(mesh):
        return here
    key_files = sorted(root.glob(f"*/{IDENTITY}/{KEY_FILE}"))
    if not key_files:
        raise ConfigError(
            f"The mesh {mesh!r} speaks TLS, and no node of it has a key below {root}: give a "
            "node's state directory with --state."
        )
    return key_files[0].parent.parent


# Questions ----------------------------------------------------------------------------------------


def ask(make: Make, question: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Return the answer to a question that one client asks."""

    async def asked() -> Answer:
        async with make() as client:
            return await question(client)

    return uvloop.run(asked())


def ask_peers(plan: NodePlan) -> tuple[list[status_pb2.Peer], FednodeError | None]:
    """Return the peers that a plan's node knows; none, and why, if it does not answer."""
    make = partial(client_of, plan.peers, plan.state)
    try:
        return ask(make, lambda client: client.peers(place_of(plan))), None
    except FednodeError as fault:
        return [], fault


def control(plan: NodePlan, where: Address, command: str, proof: bytes) -> str:
    """Send a command to a node, with the key of a plan's node; return what the node did."""
    make = partial(client_of, plan.peers, plan.state)
    return ask(make, lambda client: client.control(where, command, proof))


async def ask_all(client: Client, targets: Targets) -> Replies:
    """Return each node with its status, or None if it does not answer.

    Members that joined later, and that peers.yaml does not list, are named by the nodes that
    answer; they are asked, too.
    """
    replies = await _ask_each(client, targets)
    return replies + await _ask_each(client, _unlisted(replies))


async def everyone(client: Client, targets: Targets) -> Targets:
    """Return the nodes, and the further members that those nodes name which answer."""
    return [*targets, *_unlisted(await _ask_each(client, targets))]


async def _ask_each(client: Client, targets: Targets) -> Replies:
    async def status(where: Address) -> status_pb2.StatusReply | None:
        try:
            return await client.status(where)
        except FednodeError:
            return None

    replies = await asyncio.gather(*(status(where) for _, where in targets))
    return list(zip(targets, replies, strict=True))


def _unlisted(replies: Replies) -> Targets:
    """Return the members that nodes name in their replies, and that were not asked."""
    answers = [reply for _, reply in replies if reply is not None]
    known = {name for (name, _), _ in replies} | {reply.name for reply in answers}
    more = {
        peer.name: asked_at(peer.address, peer.name)
        for reply in answers
        for peer in reply.peers
        if peer.name not in known and peer.state not in GONE and peer.address
    }
    return sorted(more.items())[:MORE_MAX]
