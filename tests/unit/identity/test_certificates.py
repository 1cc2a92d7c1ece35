"""Certificates: what they say, how they are packed, and who may sign them."""

from __future__ import annotations

import pytest
from cryptography import x509

from fednode.errors import IdentityError
from fednode.identity.certificates import ANY_NODE, Chain, host_of
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
    leaf = Chain.read(mesh.chain("hospital-b")).own.raw
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


def test_bytes_that_are_no_chain_are_refused() -> None:
    for packed in (b"", b"x", b"\x90", b"\xa1x", b"\x91\xc4\x01x", b"\x93" * 9):
        with pytest.raises(IdentityError, match="no certificates"):
            Chain.unpack(packed)
    for pem in (b"", b"x", SmallMesh().chain("b")[:300]):
        with pytest.raises(IdentityError, match="cannot be read"):
            Chain.read(pem)


def test_a_chain_is_whole_and_nothing_behind_it_is_read() -> None:
    mesh = SmallMesh()
    pem, other = mesh.chain("b"), SmallMesh().chain("c")
    assert Chain.read(pem + other).pem == pem
    assert Chain.read(mesh.root.node("b", mesh.key("b").public_key()) + other).sponsor is None
    with pytest.raises(IdentityError, match="its sponsor is missing"):
        Chain.read(pem[: pem.index(b"-----END") + 26])
