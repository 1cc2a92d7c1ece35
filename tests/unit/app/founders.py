"""A founder of a mesh that runs in this process, for tests of admission."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fednode.admission.link import Link, half_of
from fednode.app.admission import register_of
from fednode.app.founding import found, remember_files
from fednode.app.network import IDENTITY, NodeNetwork, join
from fednode.app.plan import NodePlan, make
from fednode.app.writing import mesh_text
from fednode.identity.identity import Identity
from fednode.runtime.door import Door
from fednode.settings.peers import PeerEntry, RelayEntry
from fednode.transports.address import RELAY
from fednode.transports.ports import free_ports

MESH = "ward"


def images(folder: Path) -> Path:
    """Make a folder with an image."""
    (folder / "one").mkdir(parents=True)
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(folder / "one" / "1.png")
    return folder


def founded(folder: Path, monkeypatch: pytest.MonkeyPatch, *relays: RelayEntry) -> NodePlan:
    """Found a mesh in an empty home folder; return the plan of its node.

    relays: the node takes no connections, and waits there.
    """
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("FEDNODE_TUNING__KIND", "closed-form")
    address = RELAY if relays else f"127.0.0.1:{free_ports(1)[0]}"
    files = folder / MESH
    identity, mesh_key = found(MESH, "a", address, files)
    files.mkdir()
    peers = mesh_text(MESH, mesh_key, ["a"], [PeerEntry("a", address, identity.id)], relays)
    (files / "peers.yaml").write_text(peers)
    (files / "node.yaml").write_text("name: a\npolicy: {name: promptfl}\nrounds: {max: 3}\n")
    return make(files / "peers.yaml", files / "node.yaml", None, (), None)


@contextlib.asynccontextmanager
async def admits(plan: NodePlan) -> AsyncIterator[NodeNetwork]:
    """Let the node of a plan listen and admit newcomers, without a kernel."""
    network = join(plan)
    assert network.admission is not None
    try:
        await network.transport.listen(plan.listen, Door().on_frame)
        await network.admission.open()
        yield network
    finally:
        await network.admission.close()
        await network.transport.close()


def identity_of(plan: NodePlan) -> Identity:
    """Return the founder's identity."""
    return Identity(plan.state / IDENTITY, MESH, plan.name)


def link_to(plan: NodePlan, name: str, days: float = 7) -> Link:
    """Return a link for a site."""
    own = identity_of(plan)
    return Link(
        mesh=MESH,
        mesh_key=str(plan.peers.mesh_key),
        maker=half_of(own.id),
        token=register_of(plan.state, own).tokens.for_link(name, days),
        name=name,
        addresses=(plan.address,),
    )


def joined(founder: NodePlan, folder: Path, name: str) -> NodePlan:
    """Return the plan of a site that a founder admitted; its files get a folder of their own."""
    files, address = folder / f"files-{name}", f"127.0.0.1:{free_ports(1)[0]}"
    own = identity_of(founder)
    identity = Identity(founder.state.parent / name / IDENTITY, MESH, name)
    token = link_to(founder, name).token.hex()
    register = register_of(founder.state, own)
    identity.take_lease(register.enrol(identity.id, MESH, name, address, token))
    entries = [PeerEntry(founder.name, founder.address, own.id), PeerEntry(name, address)]
    files.mkdir()
    text = mesh_text(MESH, str(founder.peers.mesh_key), [founder.name], entries, ())
    (files / "peers.yaml").write_text(text)
    (files / "node.yaml").write_text(
        f"name: {name}\npolicy: {{name: promptfl}}\nrounds: {{max: 3}}\n"
    )
    remember_files(founder.state.parent / name, files)
    return make(files / "peers.yaml", files / "node.yaml", None, (), None)
