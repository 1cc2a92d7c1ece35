"""Keys: private ones in files, and how public ones and their ids are written.

A node's own key is P-256; the mesh key is Ed25519.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from pathlib import Path
from typing import Final, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from fednode.errors import IdentityError, StateError
from fednode.storage.disk import Disk, content_of, explained

PrivateKey = ec.EllipticCurvePrivateKey | Ed25519PrivateKey
PublicKey = ec.EllipticCurvePublicKey | Ed25519PublicKey
Kind = TypeVar("Kind", ec.EllipticCurvePrivateKey, Ed25519PrivateKey)
CURVE: Final = ec.SECP256R1()
"""Of all keys of nodes: P-256."""
KEY_FILE: Final = "node.key"
MESH_KEY_FILE: Final = "mesh.key"
_BYTES: Final = 32
_GROUP: Final = 8


def written(key: Ed25519PublicKey) -> str:
    """Return a public key as text, as peers.yaml gives the mesh key."""
    return grouped(key.public_bytes_raw())


def read_public(text: str) -> Ed25519PublicKey:
    """Return the key that `written` wrote; raise IdentityError for other text."""
    return Ed25519PublicKey.from_public_bytes(read_group(text))


def read_group(text: str) -> bytes:
    """Return the 32 bytes of an id or of a written key; raise IdentityError for other text."""
    plain = text.replace("-", "").upper()
    try:
        raw_key = base64.b32decode(plain + "=" * (-len(plain) % 8))
    except ValueError:
        raw_key = b""
    if len(raw_key) != _BYTES or grouped(raw_key) != text:
        raise IdentityError(
            f"{text[:80]!r} is no id or key: it must be 52 letters and digits in groups of eight, "
            "as peers.yaml has the mesh_key"
        )
    return raw_key


def grouped(data: bytes) -> str:
    """Return 32 bytes as text: base32 in groups joined by hyphens."""
    text = base64.b32encode(data).decode().rstrip("=")
    return "-".join(text[start : start + _GROUP] for start in range(0, len(text), _GROUP))


def id_of(key: PublicKey) -> str:
    """Return the id of a node's key: SHA-256 in base32, in groups."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    data = key.public_bytes(serialization.Encoding.DER, form)
    return grouped(hashlib.sha256(data).digest())


def point_of(key: PublicKey) -> bytes:
    """Return a public P-256 key as the 33 bytes that `read_point` reads."""
    form = serialization.PublicFormat.CompressedPoint
    return key.public_bytes(serialization.Encoding.X962, form)


def read_point(point: bytes) -> ec.EllipticCurvePublicKey:
    """Return the public key of an invitation; raise IdentityError for other bytes."""
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(CURVE, point)
    except ValueError as fault:
        raise IdentityError("these bytes are no public key of an invitation") from fault


def pem_of(key: PrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def load(path: Path) -> Ed25519PrivateKey:
    """Return the mesh key in a file; raise StateError if it cannot be used."""
    advice = "give the copy that the founder kept with --mesh-key FILE"
    return _load(path, Ed25519PrivateKey, advice)  # type: ignore[type-abstract]


def load_node_key(folder: Path) -> ec.EllipticCurvePrivateKey:
    """Return the key of a node in a folder; raise StateError if it cannot be used."""
    advice = "restore it from a backup, or rename its folder and ask for a new link"
    kind = ec.EllipticCurvePrivateKey
    return _load(folder / KEY_FILE, kind, advice)  # type: ignore[type-abstract]


def _load(path: Path, kind: type[Kind], advice: str) -> Kind:
    # TypeError: the key is encrypted, and there is no password.
    with contextlib.suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = serialization.load_pem_private_key(content_of(path), password=None)
        if isinstance(key, kind) and getattr(key, "curve", CURVE).name == CURVE.name:
            return key
    raise StateError(
        f"The key {path} is damaged, has a password, or is of another kind, as earlier versions of "
        f"fednode made: {advice}."
    )


def create(path: Path) -> Ed25519PrivateKey:
    """Make a mesh key and store it in a file; raise StateError if that fails."""
    key = Ed25519PrivateKey.generate()
    store(path, key)
    return key


def store(path: Path, key: PrivateKey) -> None:
    """Write a private key to a file, whole or not at all; only its owner may read it.

    Raise StateError if that fails.
    """
    disk, sure = Disk(), "this user may read and write there"
    with explained(f"The key {path} cannot be used", f". Make sure that {sure}."):
        disk.make_folder(path.parent)
        disk.replace(path, pem_of(key))
