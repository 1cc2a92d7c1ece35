"""A founder of a mesh that runs in this process, for tests of enrolment."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from PIL import Image

from fednode.app.create import create_mesh, load_mesh_key, remember_files
from fednode.app.invite import link_for
from fednode.app.mesh import Mesh, connect
from fednode.app.node_yaml import mesh_text
from fednode.app.plan import NodePlan, make
from fednode.enrolment.invitation import Invitation, decode
from fednode.enrolment.ledger import FOLDER, Ledger
from fednode.identity import keys
from fednode.identity.certificates import Authority
from fednode.identity.identity import NodeIdentity
from fednode.identity.roster import Roster
from fednode.runtime.driver import Door
from fednode.settings.peers import PeerEntry, Peers
from fednode.transports.address import RELAY, RelayEntry
from fednode.transports.ports import free_ports

MESH = "ward"


def images(folder: Path) -> Path:
    """Make a folder with an image."""
    (folder / "one").mkdir(parents=True)
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(folder / "one" / "1.png")
    return folder


def founded(folder: Path, monkeypatch: pytest.MonkeyPatch, *relays: RelayEntry) -> NodePlan:
    """Create a mesh in an empty home folder; return the plan of its node.

    relays: the node takes no connections, and waits there.
    """
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("FEDNODE_TUNING__KIND", "closed-form")
    monkeypatch.setattr("fednode.enrolment.client.AGAIN_S", 0.0)
    address = RELAY if relays else f"127.0.0.1:{free_ports(1)[0]}"
    files = folder / MESH
    mesh_key = create_mesh(MESH, "a", files)
    return planned(files, "a", mesh_key, [PeerEntry("a", address)], relays)


def planned(
    files: Path, name: str, mesh_key: str, peers: list[PeerEntry], relays: tuple[RelayEntry, ...]
) -> NodePlan:
    """Write the files of a node into a new folder; return its plan."""
    files.mkdir()
    (files / "peers.yaml").write_text(
        mesh_text(Peers(MESH, tuple(peers), mesh_key=mesh_key, relays=relays))
    )
    (files / "node.yaml").write_text(
        f"name: {name}\npolicy: {{name: promptfl}}\nrounds: {{max: 3}}\n"
    )
    return make(files / "peers.yaml", files / "node.yaml", None, (), None)


@contextlib.asynccontextmanager
async def admits(plan: NodePlan) -> AsyncIterator[Mesh]:
    """Let the node of a plan listen and admit newcomers, without a kernel."""
    mesh = connect(plan)
    assert mesh.sponsor is not None
    try:
        await mesh.transport.listen(plan.listen, Door().on_frame)
        await mesh.sponsor.look()
        yield mesh
    finally:
        await mesh.transport.close()


def identity_of(plan: NodePlan) -> NodeIdentity:
    """Return the identity of the node of a plan."""
    return NodeIdentity(plan.state)


def ledger_of(plan: NodePlan) -> Ledger:
    return Ledger(plan.state / FOLDER)


def link_to(plan: NodePlan, name: str, approve: bool = False) -> Invitation:
    """Return an invitation of a site."""
    return decode(link_for(name, plan, ledger_of(plan), approve))


def joined(founder: NodePlan, folder: Path, name: str) -> NodePlan:
    """Return the plan of a site that a founder admitted; its files get a folder of their own."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    state, mesh_key = founder.state.parent / name, str(founder.peers.mesh_key)
    identity, own = NodeIdentity.create(state), identity_of(founder)
    roster = Roster(MESH, keys.read_public(mesh_key))
    authority = own.sponsor()
    assert isinstance(authority, Authority)
    identity.take_certificate(authority.node(name, identity.key.public_key()), roster)
    ledger_of(founder).record(name, identity.id)
    remember_files(state, folder / f"files-{name}")
    entries = [PeerEntry(founder.name, founder.address), PeerEntry(name, address)]
    return planned(folder / f"files-{name}", name, mesh_key, entries, ())


def resign(plan: NodePlan, identity: NodeIdentity | None = None) -> None:
    """Let the founder's node be a member that may sign no certificates."""
    own, key = identity or identity_of(plan), mesh_key_of(plan)
    chain = Authority.root(MESH, key).node(own.name, own.key.public_key())
    own.take_certificate(chain, Roster(MESH, key.public_key()))


def mesh_key_of(plan: NodePlan) -> Ed25519PrivateKey:
    return load_mesh_key(plan)
