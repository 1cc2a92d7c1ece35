"""A founder of a mesh in this process, for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.app.create import create_mesh
from fednode.app.plan import NodePlan, make
from fednode.app.writing import mesh_text
from fednode.settings.peers import PeerEntry, RelayEntry
from fednode.transports.address import RELAY
from fednode.transports.ports import free_ports

MESH = "ward"


def founded(folder: Path, monkeypatch: pytest.MonkeyPatch, *relays: RelayEntry) -> NodePlan:
    """Found a mesh in an empty home folder; return the plan of its node.

    relays: the node takes no connections, and waits there.
    """
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("FEDNODE_TUNING__KIND", "closed-form")
    address = RELAY if relays else f"127.0.0.1:{free_ports(1)[0]}"
    files = folder / MESH
    mesh_key = create_mesh(MESH, "a", address, files)
    files.mkdir()
    peers = mesh_text(MESH, mesh_key, [PeerEntry("a", address)], list(relays))
    (files / "peers.yaml").write_text(peers)
    (files / "node.yaml").write_text("name: a\npolicy: {name: promptfl}\nrounds: {max: 3}\n")
    return make(files / "peers.yaml", files / "node.yaml", None, (), None)
