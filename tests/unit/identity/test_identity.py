"""A node's identity on disk: key, certificate, sponsor's certificate, and state of before."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.errors import IdentityError, StateError
from fednode.identity import keys
from fednode.identity.certificates import Chain
from fednode.identity.identity import NodeIdentity
from fednode.identity.roster import Member
from tests.unit.identity.people import SmallMesh

DAY = 86_400


def test_a_key_is_made_once(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no key of a node"):
        NodeIdentity(tmp_path)
    one, again = NodeIdentity.create(tmp_path), NodeIdentity.create(tmp_path)
    assert one.id == again.id
    assert (one.name, one.proof, one.own().chain) == ("", b"", b"")
    assert (tmp_path / "identity" / "node.key").stat().st_mode & 0o777 == 0o600


def test_a_certificate_gives_the_name_and_is_shown_from_then_on(tmp_path: Path) -> None:
    mesh = SmallMesh()
    node = NodeIdentity.create(tmp_path)
    mesh.keys["b"] = node.key
    roster, before = mesh.roster(), node.own()
    assert node.needs_renewal(roster)
    node.take_certificate(mesh.chain("b"), roster)
    assert node.name == NodeIdentity(tmp_path).name == "b"
    assert not node.needs_renewal(roster)
    assert node.own() is not before
    assert node.own() is node.own()
    assert roster.identify(Chain.unpack(node.proof).pem)


def test_a_certificate_of_another_key_name_or_mesh_is_not_taken(tmp_path: Path) -> None:
    mesh = SmallMesh()
    mesh.write(tmp_path, "b")
    mesh.keys["d"] = mesh.key("b")
    node, roster = NodeIdentity(tmp_path), mesh.roster()
    for chain, said in (
        (mesh.chain("d"), "is for 'd' with the key"),
        (mesh.sponsor.node("b", mesh.key("c").public_key()), "this node is 'b'"),
        (SmallMesh().chain("b"), "no certificate of this mesh"),
    ):
        with pytest.raises(IdentityError, match=said):
            node.take_certificate(chain, roster)
    assert NodeIdentity(tmp_path).name == "b"


def test_it_is_renewed_in_the_last_third_or_if_its_sponsor_was_revoked(tmp_path: Path) -> None:
    mesh = SmallMesh()
    mesh.write(tmp_path, "b")
    node, roster = NodeIdentity(tmp_path), mesh.roster("b")
    now = node.clock()
    node.clock = lambda: now + 58 * DAY
    assert not node.needs_renewal(roster)
    node.clock = lambda: now + 61 * DAY
    assert node.needs_renewal(roster)
    node.clock = lambda: now
    roster.take_revocation(mesh.revocation("a"))
    assert node.needs_renewal(roster)


def test_a_sponsor_signs_with_its_own_key(tmp_path: Path) -> None:
    mesh = SmallMesh()
    mesh.write(tmp_path, "b")
    node, roster = NodeIdentity(tmp_path), mesh.roster()
    assert (node.sponsor(), node.sponsor_end) == (None, 0.0)
    right = mesh.sponsor_of("b").chain
    node.take_sponsor(right, roster)
    for one in (node, NodeIdentity(tmp_path)):
        authority = one.sponsor()
        assert authority is not None
        assert (authority.name, authority.chain) == ("sponsor b", right)
        assert roster.identify(authority.node("c", mesh.key("c").public_key()))
        assert roster.identify(one.own().chain) == Member("b", node.id)
    assert not node.take_sponsor(right, roster)
    node.clock = lambda: node.sponsor_end + 1
    assert node.sponsor() is None


def test_an_earlier_right_replaces_no_later_one_and_nothing_else_is_stored(tmp_path: Path) -> None:
    mesh = SmallMesh()
    mesh.write(tmp_path, "a")
    node, roster = NodeIdentity(tmp_path), mesh.roster()
    file = tmp_path / "identity" / "node.crt"
    end, later = node.sponsor_end, mesh.sponsor_of("a", days=400).chain
    node.take_sponsor(later + b"\xff any other bytes", roster)
    assert node.sponsor_end > end
    assert file.read_bytes().endswith(later)
    before = file.read_bytes()
    with pytest.raises(IdentityError, match="and the present one on"):
        node.take_sponsor(mesh.sponsor.chain, roster)
    assert file.read_bytes() == before


def test_the_right_of_another_node_or_mesh_is_not_taken(tmp_path: Path) -> None:
    mesh, other = SmallMesh(), SmallMesh()
    mesh.write(tmp_path, "b")
    node, roster, public = NodeIdentity(tmp_path), mesh.roster(), mesh.key("b").public_key()
    mesh.keys["x"] = other.keys["b"] = mesh.key("b")
    foreign = "cannot be used: it shows no certificate of this mesh"
    for certificate, said in (
        (mesh.sponsor_of("x").chain, "for 'x'"),
        (mesh.root.sponsor("b", mesh.key("c").public_key()), foreign),
        (other.sponsor_of("b").chain, foreign),
        (mesh.sponsor.sponsor("b", public), "missing"),  # a sponsor makes no sponsor
        (mesh.root.node("b", public), foreign),
        (mesh.chain("b"), foreign),
        (mesh.sponsor.chain, foreign),  # its own sponsor's
        (mesh.sponsor_of("b", days=-0.01).chain, "cannot be used: its certificate ended on"),
    ):
        with pytest.raises(IdentityError, match=said):
            node.take_sponsor(certificate, roster)
    assert not NodeIdentity(tmp_path).sponsor_end


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("node.key", b"x", "node.key is damaged"),
        ("node.crt", b"x", "node.crt is damaged"),
        ("node.crt", SmallMesh().chain("b"), "node.crt is the certificate of another key than"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    SmallMesh().write(tmp_path, "b")
    (tmp_path / "identity" / name).write_bytes(content)
    with pytest.raises(StateError, match=said):
        NodeIdentity(tmp_path)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("name", ["identity/node.key", "identity/node.crt", "identity/revoked"])
def test_a_file_that_the_system_does_not_give_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    mesh = SmallMesh()
    mesh.write(tmp_path, "a")
    roster, read = mesh.roster(), Path.read_bytes
    roster.keep_in(tmp_path / "identity" / "revoked")
    roster.take_revocation(mesh.revocation("b"))

    def use() -> None:
        NodeIdentity(tmp_path)
        mesh.roster().keep_in(tmp_path / "identity" / "revoked")

    def denied(path: Path) -> bytes:
        if path == tmp_path / name:
            raise OSError(number, os.strerror(number), str(path))
        return read(path)

    use()
    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(StateError, match=f"{name} cannot be read: .*. Try again when it can"):
        use()


@pytest.mark.parametrize("what", ["identity/lease", "admission", "journal.db"])
def test_state_of_before_is_named_and_not_changed(tmp_path: Path, what: str) -> None:
    keys.store(tmp_path / "identity" / "node.key", Ed25519PrivateKey.generate())
    (tmp_path / what).write_text("x")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    for begin in (NodeIdentity, NodeIdentity.create):
        with pytest.raises(StateError, match=r"earlier version.*nothing in it was changed.*anew"):
            begin(tmp_path)
    assert before == {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
