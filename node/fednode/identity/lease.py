"""Statements that a key signs: leases and revocations (the mesh key), successions (a node's key).

    lease        this name in this mesh belongs to this id until then
    revocation   this id belongs to nobody in this mesh any more
    succession   signed by the old key: this name's id is this new id

A proof is the signature (64 bytes), followed by the statement as JSON with sorted keys.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final, Literal, get_args

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from fednode.errors import IdentityError

Kind = Literal["lease", "revocation", "succession"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
DAY_S: Final = 86_400
LEASE_DAYS: Final = 90
SKEW_S: Final = 2 * 3600
"""Allowed difference between two nodes' clocks: a lease is valid this long before its signing."""
PROOF_BYTES_MAX: Final = 1024
_SIGNATURE_BYTES: Final = 64
_PURPOSE: Final = b"fednode statement 1\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The statement that a key signs.

    issued, expires: seconds since the epoch; 0 for no end.
    by: for a succession, the old key that signs it; empty if the mesh key signs.
    """

    kind: Kind
    mesh: str
    name: str
    id: str
    issued: int
    expires: int = 0
    by: str = ""

    def fault(self, mesh: str, now: float) -> str:
        """Return why the statement does not hold in a mesh at a time; "" if it holds.

        A revocation holds whatever its date: a node whose clock is behind must believe it, too.
        """
        if self.mesh != mesh:
            return f"its {self.kind} is for the mesh {self.mesh!r}"
        if self.kind != "revocation" and self.issued - SKEW_S > now:
            return f"its {self.kind} is from the future: check the clock"
        if self.expires and now > self.expires:
            hours = (now - self.expires) / 3600
            return f"its {self.kind} expired {hours:.1f} hours ago: ask for a new one"
        return ""


def nearly_over(lease: Statement, now: float) -> bool:
    """Tell whether a lease is to be renewed: its last third has begun."""
    return lease.expires - now < (lease.expires - lease.issued) / 3


def sign(key: Ed25519PrivateKey, statement: Statement) -> bytes:
    """Return the proof of a statement."""
    body = json.dumps(asdict(statement), sort_keys=True, separators=(",", ":")).encode()
    return key.sign(_PURPOSE + body) + body


def read(proof: bytes, key: Ed25519PublicKey) -> Statement:
    """Return the statement that a key signed; raise IdentityError for any other bytes."""
    if len(proof) > PROOF_BYTES_MAX:
        raise IdentityError(f"a proof of {len(proof)} bytes; at most {PROOF_BYTES_MAX} fit")
    signature, body = proof[:_SIGNATURE_BYTES], proof[_SIGNATURE_BYTES:]
    try:
        key.verify(signature, _PURPOSE + body)
    except InvalidSignature as fault:
        raise IdentityError("a proof is not signed by the key that it should be") from fault
    return peek(proof)


def peek(proof: bytes) -> Statement:
    """Return the statement of a proof, whoever signed it; raise IdentityError for other bytes."""
    try:
        fields = json.loads(proof[_SIGNATURE_BYTES:])
        statement = Statement(**fields)
    except (ValueError, TypeError, RecursionError) as fault:
        raise IdentityError("a proof holds no statement of fednode's") from fault
    words = (statement.mesh, statement.name, statement.id, statement.by)
    times = (statement.issued, statement.expires)
    sound = statement.kind in KINDS and all(isinstance(word, str) for word in words)
    if not sound or not all(type(moment) is int and moment >= 0 for moment in times):
        raise IdentityError("a proof holds a statement that this version does not know")
    return statement
