"""The identity: made once, the same ever after, and never replaced in silence."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.errors import IdentityError, StateError
from fednode.identity import keys
from fednode.identity.keys import KEY_FILE, id_of, load_node_key, pem_of


def create(folder: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    keys.store(folder / KEY_FILE, key)
    return key


def test_a_key_is_read_as_it_was_made(tmp_path: Path) -> None:
    made = create(tmp_path / "identity")
    assert load_node_key(tmp_path / "identity").public_key() == made.public_key()
    path = tmp_path / "identity" / KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == [KEY_FILE]
    id = id_of(made.public_key())
    assert re.fullmatch(r"([A-Z2-7]{8}-){6}[A-Z2-7]{4}", id)
    assert id != id_of(create(tmp_path / "other").public_key())


def test_the_mesh_key_is_written_as_text_and_read_back(tmp_path: Path) -> None:
    key = keys.create(tmp_path / "mesh.key")
    text = keys.written(key.public_key())
    assert (
        keys.read_public(text) == key.public_key() == keys.load(tmp_path / "mesh.key").public_key()
    )
    with pytest.raises(IdentityError, match="is no id or key"):
        keys.read_public(text.lower())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"-----BEGIN PRIVATE KEY-----\n",
        pem_of(ec.generate_private_key(ec.SECP384R1())),
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        ),
        pem_of(ec.generate_private_key(ec.SECP256R1()))[:-40],
        pem_of(Ed25519PrivateKey.generate()),
        b"x" * 100_000,
    ],
    ids=["empty", "cut", "another curve", "encrypted", "cut short", "old", "x"],
)
def test_a_damaged_key_is_named_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / KEY_FILE
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"The key .*node\.key is damaged, has a password"):
        load_node_key(tmp_path)
    assert path.read_bytes() == content
    path.with_name("mesh.key").write_bytes(content[:40])
    with pytest.raises(StateError, match="give the copy that the founder kept with --mesh-key"):
        keys.load(path.with_name("mesh.key"))


def test_a_file_in_the_way_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "identity").write_text("I am a file")
    with pytest.raises(StateError, match="cannot be used: a file is where"):
        create(tmp_path / "identity")
