"""The identity: made once, the same ever after, and never replaced in silence."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fednode.errors import StateError
from fednode.identity.keys import KEY_FILE, load_or_create, node_id


def pem(key: Ed25519PrivateKey | X25519PrivateKey, password: bytes = b"") -> bytes:
    protection = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection
    )


def test_the_id_stays_and_another_folder_has_another(tmp_path: Path) -> None:
    first = node_id(load_or_create(tmp_path / "a" / "identity"))
    assert node_id(load_or_create(tmp_path / "a" / "identity")) == first
    assert node_id(load_or_create(tmp_path / "b" / "identity")) != first


def test_the_id_is_the_fingerprint_of_the_public_key() -> None:
    # RFC 8032, section 7.1, test 1; the digest of its public key by sha256sum, base32 by base32.
    secret = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    found = node_id(key)
    assert re.fullmatch(r"([A-Z2-7]{8}-){6}[A-Z2-7]{4}", found)
    assert found == "EH7DDX5B-KSRGCYTL-7BKAI36S-E4NXX3KL-NK7ELKSY-Q57PI74X-EG4Q"


def test_the_key_is_for_its_owner_only(tmp_path: Path) -> None:
    load_or_create(tmp_path / "identity")
    path = tmp_path / "identity" / KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == [KEY_FILE]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"-----BEGIN PRIVATE KEY-----\n",
        pem(X25519PrivateKey.generate()),
        pem(Ed25519PrivateKey.generate(), b"secret"),
        pem(Ed25519PrivateKey.generate())[:-40],
        b"x" * 100_000,
    ],
    ids=["empty", "cut", "of another kind", "encrypted", "shortened", "no key"],
)
def test_a_damaged_key_is_named_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / KEY_FILE
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"The key .*node\.key is damaged, has a password"):
        load_or_create(tmp_path)
    assert path.read_bytes() == content


def test_a_half_written_key_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "node.new").write_bytes(b"-----BEGIN")
    key = load_or_create(tmp_path)
    assert node_id(load_or_create(tmp_path)) == node_id(key)


def test_a_file_in_the_way_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "identity").write_text("I am a file")
    with pytest.raises(StateError, match="cannot be used: a file is where"):
        load_or_create(tmp_path / "identity")
