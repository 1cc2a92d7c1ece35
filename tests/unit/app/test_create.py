"""A founder's key, certificate and right; the mesh key lies beside the nodes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from fednode.app.create import (
    address_here,
    create_mesh,
    mesh_key_file,
    node_here,
    site_here,
    with_port,
)
from fednode.app.plan import NodePlan
from fednode.errors import ConfigError, StateError
from fednode.identity import keys
from fednode.identity.roster import Member, Roster
from fednode.transports.address import parse
from tests.unit.app.founders import MESH, identity_of, resign


def test_the_founder_has_a_certificate_and_the_right_to_sign_others(
    founder: NodePlan, tmp_path: Path
) -> None:
    own, key = identity_of(founder), keys.read_public(str(founder.peers.mesh_key))
    roster = Roster(MESH, key)
    assert roster.identify(own.own().chain) == Member("a", own.id)
    authority = own.sponsor()
    assert authority is not None
    assert authority.name == "sponsor a"
    assert mesh_key_file(MESH).stat().st_mode & 0o077 == 0
    assert mesh_key_file(MESH).parent == founder.state.parent
    assert founder.peers.mesh_key == keys.written(keys.load(mesh_key_file(MESH)).public_key())
    with pytest.raises(ConfigError, match="This machine founded a mesh 'ward' already"):
        create_mesh(MESH, "a", tmp_path)


def test_the_node_that_admits_is_found_from_any_folder(
    founder: NodePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert node_here(admits=True).name == founder.name
    resign(founder)
    with pytest.raises(ConfigError, match="No node of this machine admits sites"):
        node_here(admits=True)
    (founder.state / "enrolment" / "files").write_bytes(b"\xff\xfe")
    with pytest.raises(StateError, match=r"enrolment/files is not UTF-8 text: restore it from"):
        node_here(admits=True)


def test_this_machine_has_a_name_and_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Büro_7.Example.org")
    assert site_here() == "b-ro-7"
    monkeypatch.setattr("socket.gethostname", lambda: "ß")
    assert site_here() == "site"
    near = ("127.0.0.1", 9)
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr("fednode.app.create.PORT", taken)
        there = parse(address_here(near))
        assert there.loopback
        assert there.port not in {0, taken}, "another process has it"
    assert parse(address_here(near)).port == taken


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("127.0.0.2", "127.0.0.2:7100"),
        ("node.example.org", "node.example.org:7100"),
        ("[2001:db8::1]", "[2001:db8::1]:7100"),
        ("2001:db8::1", "[2001:db8::1]:7100"),
        ("10.0.0.1:9", "10.0.0.1:9"),
        ("[2001:db8::1]:9", "[2001:db8::1]:9"),
        ("relay", "relay"),
    ],
)
def test_an_address_without_a_port_gets_the_usual_one(given: str, address: str) -> None:
    assert with_port(given) == address
