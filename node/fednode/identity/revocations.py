"""Revocations: statements, signed by the mesh key, that a key belongs to nobody any more.

A proof is the signature (64 bytes), followed by the statement in msgpack. A revocation has no end,
and holds whatever its date: a node whose clock is behind must believe it, too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

import msgpack
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fednode.errors import IdentityError

PROOF_BYTES_MAX: Final = 512
_SIGNATURE_BYTES: Final = 64
_PURPOSE: Final = b"fednode revocation 1\0"


@dataclass(frozen=True, slots=True)
class Revocation:
    """The key `id`, which had a name in a mesh, is revoked. time: seconds since the epoch."""

    mesh: str
    name: str
    id: str
    time: int

    def sign(self, mesh_key: Ed25519PrivateKey) -> bytes:
        body: bytes = msgpack.packb(asdict(self))
        return mesh_key.sign(_PURPOSE + body) + body


def verify(proof: bytes, mesh_key: Ed25519PublicKey) -> Revocation:
    """Return the revocation that a mesh key signed; raise IdentityError for any other bytes."""
    signature, body = proof[:_SIGNATURE_BYTES], proof[_SIGNATURE_BYTES:]
    try:
        if len(proof) > PROOF_BYTES_MAX:
            raise IdentityError(
                f"a revocation has at most {PROOF_BYTES_MAX} bytes, and this has {len(proof):,}"
            )
        mesh_key.verify(signature, _PURPOSE + body)
        revocation = Revocation(**msgpack.unpackb(body))
        words = (revocation.mesh, revocation.name, revocation.id)
        if not all(isinstance(word, str) for word in words) or type(revocation.time) is not int:
            raise TypeError("a field of another kind")
        return revocation
    except InvalidSignature as fault:
        raise IdentityError("the mesh key did not sign this revocation") from fault
    except (ValueError, TypeError, msgpack.UnpackException) as fault:
        raise IdentityError("this version cannot read this revocation") from fault
