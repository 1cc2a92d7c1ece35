"""A node's identity: an Ed25519 key made at first start; its id is the public key's fingerprint."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from node.errors import StateError
from node.runtime.disk import because

KEY_FILE: Final = "node.key"
GROUP: Final = 8
# A PEM file of such a key has 119 bytes.
_KEY_BYTES_MAX: Final = 4096


def node_id(key: Ed25519PrivateKey) -> str:
    """Return SHA-256 of the public key in base32, in groups joined by hyphens."""
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    text = base64.b32encode(hashlib.sha256(raw).digest()).decode().rstrip("=")
    return "-".join(text[start : start + GROUP] for start in range(0, len(text), GROUP))


def load_or_create(folder: Path) -> Ed25519PrivateKey:
    """Return the key in a folder; where there is none, make one that only its owner can read.

    Raise StateError where the key is damaged or cannot be read or written. The caller holds the
    lock of the state directory, so that no two processes make a key at a time.
    """
    path = folder / KEY_FILE
    try:
        if not path.exists():
            return _create(path)
        with path.open("rb") as file:
            text = file.read(_KEY_BYTES_MAX)
    except OSError as fault:
        raise StateError(
            f"The key {path} cannot be used: {because(fault)}. Make sure that this user may read "
            "and write there."
        ) from fault
    try:
        key = serialization.load_pem_private_key(text, password=None)
    # TypeError: the key is encrypted, and there is no password.
    except (ValueError, TypeError, UnsupportedAlgorithm) as fault:
        raise _damaged(path) from fault
    if not isinstance(key, Ed25519PrivateKey):
        raise _damaged(path)
    return key


def _damaged(path: Path) -> StateError:
    return StateError(
        f"The key {path} is damaged or no Ed25519 key without a password: restore it from a "
        "backup, or delete it to become a new node with a new id."
    )


def _create(path: Path) -> Ed25519PrivateKey:
    key = Ed25519PrivateKey.generate()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    # Written aside, synced and renamed, so that a crash leaves a whole key or none.
    aside = path.with_suffix(".new")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return key
