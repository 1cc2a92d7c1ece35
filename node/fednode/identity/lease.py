"""Statements that a key signs: the mesh key, a sponsor's key (leases), a node's key (successions).

    lease        this name in this mesh belongs to this id until then
    sponsor      the node of this name and id may sign leases until then
    revocation   this id belongs to nobody in this mesh any more; signed by a sponsor: the leases
                 that the sponsor gave this id hold no more
    succession   signed by the old key: this name's id is this new id

A proof is the signature (64 bytes), followed by the statement as JSON with sorted keys. What a
sponsor signed holds the sponsor's own proof, so whoever has the mesh key can check it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal, get_args

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from fednode.errors import IdentityError
from fednode.identity import keys

Kind = Literal["lease", "revocation", "succession", "sponsor"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
DAY_S: Final = 86_400
LEASE_DAYS: Final = 90
SPONSOR_DAYS: Final = 365
KEPT_S: Final = 365 * DAY_S
"""How long a file keeps a lease that ended. The time is that of a newer lease, not of a clock."""
SKEW_S: Final = 2 * 3600
"""Allowed difference between two nodes' clocks: a lease is valid this long before its signing."""
OVER: Final = "its lease expired"
"""How the fault of a lease begins that is over."""
PROOF_BYTES_MAX: Final = 1024
DIGEST_LETTERS: Final = 16
STAY_MAX: Final = 32
"""Leases of a revoked sponsor that hold all the same: more do not fit into a proof."""
_SIGNATURE_BYTES: Final = 64
_PURPOSE: Final = b"fednode statement 1\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The statement that a key signs.

    issued, expires: seconds since the epoch; 0 for no end.
    by: the key that signs, if it is not the mesh key: the old key of a succession, or a sponsor's.
    under: for what a sponsor signed, the sponsor's proof as a line of text (`armour`).
    stay: for the revocation of a sponsor, the digests (`digest`) of the leases that the sponsor
    gave and that hold all the same, one behind the other; its other leases end, whatever their
    dates say.
    """

    kind: Kind
    mesh: str
    name: str
    id: str
    issued: int
    expires: int = 0
    by: str = ""
    under: str = ""
    stay: str = ""

    @property
    def staying(self) -> frozenset[str]:
        """The digests of the leases that hold all the same."""
        size = DIGEST_LETTERS
        return frozenset(self.stay[at : at + size] for at in range(0, len(self.stay), size))

    @property
    def signer(self) -> str:
        """The id of the sponsor that signed it; "" if the mesh key did."""
        return keys.fingerprint(keys.read_group(self.by)) if self.under else ""

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


def day(moment: float) -> str:
    """Return the date of a time in seconds since the epoch, in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(moment))


def long_over(lease: Statement, moment: float) -> bool:
    """Tell whether a lease ended more than a year before a time."""
    return bool(lease.expires) and lease.expires + KEPT_S < moment


def sign(key: Ed25519PrivateKey, statement: Statement) -> bytes:
    """Return the proof of a statement."""
    fields = asdict(statement)
    for added in ("under", "stay"):  # versions without sponsors do not know these fields
        if not fields[added]:
            del fields[added]
    body = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    return key.sign(_PURPOSE + body) + body


def right(key: Ed25519PrivateKey, mesh: str, name: str, id: str, now: int) -> bytes:
    """Return the proof that a node may sign leases. key: the mesh key."""
    ends = now + SPONSOR_DAYS * DAY_S
    return sign(
        key, Statement(kind="sponsor", mesh=mesh, name=name, id=id, issued=now, expires=ends)
    )


Sign = Callable[[Statement], bytes]
"""Returns the proof of a statement, with the mesh key or as a sponsor."""


def sponsored(key: Ed25519PrivateKey, sponsor: bytes, now: Callable[[], float]) -> Sign:
    """Return what signs leases as a sponsor. sponsor: the proof that the key is a sponsor's.

    The leases end when the sponsor's right ends. Once it has ended, signing raises IdentityError.
    """
    right = peek(sponsor)

    def signed(statement: Statement) -> bytes:
        fault = right.fault(right.mesh, now())
        if fault or right.id != keys.node_id(key):
            raise IdentityError(
                f"this node admits nobody any more: {fault or 'its key is another'}"
            )
        own = keys.written(key.public_key())
        ends = min(statement.expires, right.expires)
        return sign(key, replace(statement, by=own, under=armour(sponsor), expires=ends))

    return signed


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


def vouched(proof: bytes, mesh_key: Ed25519PublicKey) -> Statement:
    """Return the statement that the mesh key signed, or a sponsor of the mesh key.

    A sponsor signs leases and revocations of its own mesh, and only for times within its own. Raise
    IdentityError for any other bytes.
    """
    statement = peek(proof)
    if not statement.under:
        return read(proof, mesh_key)
    signer = keys.read_public(statement.by)
    statement = read(proof, signer)
    right = read(disarm(statement.under), mesh_key)
    if right.kind != "sponsor" or right.id != statement.signer or right.mesh != statement.mesh:
        raise IdentityError("a proof is signed by a key that is no sponsor's of this mesh")
    if statement.kind not in {"lease", "revocation"}:
        raise IdentityError(f"a sponsor signs leases and revocations, and no {statement.kind}")
    ends = statement.expires if statement.kind == "lease" else statement.issued
    if not right.issued <= statement.issued <= ends <= right.expires:
        raise IdentityError(
            f"a sponsor signed a {statement.kind} for a time that is not within its own"
        )
    return statement


def digest(proof: bytes) -> str:
    """Return the digest of a lease, of DIGEST_LETTERS letters."""
    return base64.urlsafe_b64encode(hashlib.sha256(proof).digest()[:12]).decode()


def peek(proof: bytes) -> Statement:
    """Return the statement of a proof, whoever signed it; raise IdentityError for other bytes."""
    try:
        fields = json.loads(proof[_SIGNATURE_BYTES:])
        statement = Statement(**fields)
    except (ValueError, TypeError, RecursionError) as fault:
        raise IdentityError("a proof holds no statement of fednode's") from fault
    words = (
        *(statement.mesh, statement.name, statement.id),
        *(statement.by, statement.under, statement.stay),
    )
    times = (statement.issued, statement.expires)
    sound = statement.kind in KINDS and all(isinstance(word, str) for word in words)
    if not sound or not all(type(moment) is int and moment >= 0 for moment in times):
        raise IdentityError("a proof holds a statement that this version does not know")
    return statement


def armour(proof: bytes) -> str:
    """Return a proof as one line of text."""
    return base64.urlsafe_b64encode(proof).decode()


def disarm(text: str) -> bytes:
    """Return the proof in a text that `armour` made; raise IdentityError for other text."""
    try:
        return base64.b64decode(text.strip(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as fault:
        raise IdentityError("a proof is one line of base64") from fault
