"""Certificates: what they say, how they are packed, and who may sign them."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.errors import IdentityError
from fednode.identity.certificates import (
    ANY_NODE,
    Authority,
    Chain,
    host_of,
    read_sponsor,
    root_of,
)
from tests.unit.identity.people import SmallMesh


def test_a_certificate_says_who_signed_it_and_until_when() -> None:
    mesh = SmallMesh()
    chain = Chain.read(mesh.chain("b", 90))
    node, sponsor = chain.own, chain.sponsor
    assert sponsor is not None
    assert (node.name, node.id, node.signer) == ("b", mesh.id("b"), "sponsor a")
    assert 90 * 86400 <= node.ends - node.begins <= 90 * 86400 + 3600
    assert (sponsor.name, sponsor.id, sponsor.signer) == ("a", mesh.id("a"), "mesh mesh")


def test_the_wire_shows_a_hash_in_place_of_the_name() -> None:
    mesh = SmallMesh()
    leaf = Chain.read(mesh.chain("hospital-b")).certificates[0]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    by_name, by_key = host_of("hospital-b"), host_of("hospital-b", mesh.id("hospital-b"))
    assert names.get_values_for_type(x509.DNSName) == [by_name, by_key, ANY_NODE]
    assert by_name != by_key
    assert "hospital" not in by_name + by_key
    assert host_of("") == ANY_NODE


def test_a_chain_is_packed_in_one_kilobyte() -> None:
    pem = SmallMesh().chain("b" * 63)
    chain = Chain.read(pem)
    assert Chain.unpack(chain.pack()) == chain
    assert chain.pem == pem
    assert len(chain.pack()) <= 1024


@pytest.mark.parametrize("bytes_", [b"", b"x", b"\x90", b"\xa1x", b"\x91\xc4\x01x", b"\x93" * 9])
def test_bytes_that_are_no_chain_are_refused(bytes_: bytes) -> None:
    with pytest.raises(IdentityError, match="no certificates"):
        Chain.unpack(bytes_)


@pytest.mark.parametrize("pem", [b"", b"x", SmallMesh().chain("b")[:300]])
def test_text_that_is_no_certificate_is_refused(pem: bytes) -> None:
    with pytest.raises(IdentityError, match="cannot be read"):
        Chain.read(pem)


def test_a_chain_is_whole_and_nothing_behind_it_is_read() -> None:
    mesh = SmallMesh()
    pem, other = mesh.chain("b"), SmallMesh().chain("c")
    assert Chain.read(pem + other).pem == pem
    assert Chain.read(mesh.root.node("b", mesh.key("b").public_key()) + other).sponsor is None
    with pytest.raises(IdentityError, match="its sponsor is missing"):
        Chain.read(pem[: pem.index(b"-----END") + 26])


def test_both_ends_derive_the_same_authority_from_a_token() -> None:
    one, other = (Authority.invitation(bytes(range(16))) for _ in range(2))
    assert one.name == other.name
    assert one.key.public_key() == other.key.public_key()
    assert one.key.public_key() != Authority.invitation(bytes(16)).key.public_key()


def test_a_sponsors_certificate_is_for_its_own_key_and_mesh() -> None:
    mesh, other = SmallMesh(), SmallMesh("other")
    root = root_of("mesh", mesh.mesh_key.public_key())
    pem = mesh.sponsor.chain
    authority = read_sponsor(pem, mesh.key("a"), root)
    assert (authority.name, authority.site, authority.chain) == ("sponsor a", "a", pem)
    with pytest.raises(IdentityError, match="another key"):
        read_sponsor(pem, mesh.key("b"), root)
    with pytest.raises(IdentityError, match="did not sign"):
        read_sponsor(other.sponsor.chain, other.key("a"), root)
    with pytest.raises(IdentityError, match="did not sign"):  # a sponsor makes no sponsor
        read_sponsor(mesh.sponsor.sponsor("b", mesh.key("b").public_key()), mesh.key("b"), root)
    with pytest.raises(IdentityError, match="a node's, not a sponsor's"):
        read_sponsor(mesh.root.node("a", mesh.key("a").public_key()), mesh.key("a"), root)


def test_the_root_is_made_of_the_public_key_alone() -> None:
    key = Ed25519PrivateKey.generate()
    root = root_of("mesh", key.public_key())
    sponsor = SmallMesh()
    sponsor.mesh_key = key
    assert Chain.read(sponsor.chain("b", sponsor=sponsor.sponsor_of("a"))).leads_to(root)
