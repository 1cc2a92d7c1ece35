"""Invitations: the files that nodes need to enrol, and which secrets stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.errors import ConfigError, IdentityError, StateError
from fednode.identity.keys import node_id
from fednode.settings.peers import load_peers
from fednode_bootstrap.introducer import Roster
from fednode_bootstrap.invite import invite
from tests.unit.identity.people import LISTED, MESH

ADDRESS = "127.0.0.1:7101"
A_ID, B_ID = LISTED["a"], LISTED["b"]


def test_an_invitation_holds_all_that_a_node_needs(tmp_path: Path) -> None:
    template, out = tmp_path / "peers.yaml", tmp_path / "mesh"
    listed = "peers:\n  - {name: a, address: 'a:7100'}\n  - {name: b, address: 'b:7100'}\n"
    template.write_text(f"# ours\nmesh: {MESH}\nintroducer: door:7099\n{listed}")
    assert invite(tmp_path / "book", template, out) == [
        "peers.yaml", "token-a", "token-b", "page-token",
    ]  # fmt: skip
    made = Roster(tmp_path / "book", MESH)
    peers = load_peers(out / "peers.yaml")
    assert (peers.mesh_key, peers.introducer, len(peers.peers)) == (made.mesh_key, "door:7099", 2)
    assert (out / "peers.yaml").read_text().startswith("# ours\n")
    first, second = ((out / f"token-{name}").read_text().strip() for name in "ab")
    with pytest.raises(IdentityError, match="another name than 'b'"):
        made.enrol(A_ID, MESH, "b", ADDRESS, first)
    made.enrol(A_ID, MESH, "a", ADDRESS, first)
    made.enrol(B_ID, MESH, "b", ADDRESS, second)
    assert {path.stat().st_mode & 0o777 for path in out.glob("*token*")} == {0o600}
    # Again: the same secrets, and what changed in the template.
    template.write_text(template.read_text() + f"\nmesh_key: {made.mesh_key}\n")
    assert invite(tmp_path / "book", template, out) == ["peers.yaml"]
    assert (out / "token-a").read_text().strip() == first
    # Another introducer's key: the old token would be good for nothing.
    template.write_text(f"mesh: {MESH}\nintroducer: door:7099\n{listed}")
    assert invite(tmp_path / "other", template, out) == ["peers.yaml", "token-a", "token-b"]
    assert (out / "token-a").read_text().strip() != first
    with pytest.raises(StateError, match=r"cannot be used: .*; choose another folder with --out"):
        invite(tmp_path / "book", template, template / "below")


def test_each_node_may_get_a_folder_of_its_own(tmp_path: Path) -> None:
    template, out = tmp_path / "peers.yaml", tmp_path / "mesh"
    listed = "peers:\n  - {name: a, address: 'a:7100'}\n  - {name: b, address: 'b:7100'}\n"
    template.write_text(f"mesh: {MESH}\nintroducer: door:7099\n{listed}")
    said = invite(tmp_path / "book", template, out, apart=True)
    assert said == ["peers.yaml", "a/token", "b/token", "page-token"]
    assert not list(out.glob("token*"))
    made = Roster(tmp_path / "book", MESH)
    for name, id in (("a", A_ID), ("b", B_ID)):
        files = {path.name: path.read_text() for path in (out / name).iterdir()}
        assert files.keys() == {"peers.yaml", "token", "page-token"}
        assert files["peers.yaml"] == (out / "peers.yaml").read_text()
        assert files["page-token"] == (out / "page-token").read_text()
        assert (out / name / "token").stat().st_mode & 0o777 == 0o600
        made.enrol(id, MESH, name, ADDRESS, files["token"].strip())
    assert invite(tmp_path / "book", template, out, apart=True) == ["peers.yaml"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mesh: Mesh!\n", r"line 1: mesh is 'Mesh!'; use small letters"),
        ("peers: []\n", r"mesh is ''"),
        (f"mesh: {MESH}\n", "list at least this node"),
        (f"mesh: {MESH}\nmesh_key: other\n", "line 2: mesh_key is other, and the key in"),
    ],
)
def test_what_is_wrong_with_a_template_is_named(tmp_path: Path, text: str, said: str) -> None:
    template = tmp_path / "peers.yaml"
    template.write_text(text)
    with pytest.raises(ConfigError, match=said):
        invite(tmp_path / "book", template, tmp_path / "mesh")


def test_the_introducer_s_port_is_listed_as_a_relay(tmp_path: Path) -> None:
    template = tmp_path / "peers.yaml"
    template.write_text('mesh: mesh\nintroducer: "intro.example.org:443"\n')
    invite(tmp_path / "book", template, tmp_path / "out", relay=True)
    (relay,) = load_peers(tmp_path / "out" / "peers.yaml").relays
    book = Roster(tmp_path / "book", "mesh")
    assert (relay.address, relay.id) == ("intro.example.org:443", node_id(book.key))
    template.write_text('mesh: mesh\npeers: [{name: a, address: "10.0.0.1:7700"}]\n')
    with pytest.raises(ConfigError, match="names no introducer, whose port --relay would list"):
        invite(tmp_path / "other", template, tmp_path / "out2", relay=True)
