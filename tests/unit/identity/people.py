"""Keys, leases and transports of a small mesh, for the tests of identity."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.errors import IdentityError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.certificate import mint
from fednode.identity.lease import DAY_S, Statement
from fednode.identity.trust import Trust
from fednode.transports.grpc import GrpcTransport
from fednode.transports.tls import Tls
from fednode.transports.ways import Ways

MESH = "mesh"
NOW = 1_800_000_000


def der(certificate: x509.Certificate) -> bytes:
    """Return a certificate in DER, the form in which it is sent."""
    return certificate.public_bytes(serialization.Encoding.DER)


def made_key(number: int) -> Ed25519PrivateKey:
    """Return the key of a number, always the same."""
    return Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)


MESH_KEY = made_key(99)
A, B, STRANGER = made_key(1), made_key(2), made_key(3)
LISTED = {"a": keys.node_id(A), "b": keys.node_id(B)}


def statement(kind: Any, name: str, key: Ed25519PrivateKey, **changed: Any) -> Statement:
    given = {"mesh": MESH, "issued": NOW, "expires": NOW + 90 * DAY_S, **changed}
    return Statement(kind=kind, name=name, id=keys.node_id(key), **given)


def lease(name: str, key: Ed25519PrivateKey, signer: Any = MESH_KEY, **changed: Any) -> bytes:
    return leases.sign(signer, statement("lease", name, key, **changed))


def revocation(
    name: str, key: Ed25519PrivateKey, signer: Any = MESH_KEY, issued: int = NOW
) -> bytes:
    return leases.sign(signer, statement("revocation", name, key, expires=0, issued=issued))


def succession(
    name: str, old: Ed25519PrivateKey, new: Ed25519PrivateKey, issued: int = NOW
) -> bytes:
    by = keys.written(old.public_key())
    return leases.sign(old, statement("succession", name, new, expires=0, by=by, issued=issued))


def trust(listed: dict[str, str] | None = None, clock: Callable[[], float] = lambda: NOW) -> Trust:
    return Trust(
        mesh=MESH,
        listed=LISTED if listed is None else listed,
        mesh_key=MESH_KEY.public_key(),
        clock=clock,
    )


@dataclass
class Person:
    """One end of a connection: what it shows, whom it believes, and whom it refused.

    explains: it tells those whom it refuses why. learned: proofs that it was shown. said: what it
    told its operator.
    """

    key: Ed25519PrivateKey
    name: str
    believes: Trust
    proof: bytes = b""
    days: float = 30.0
    made_at: float = field(default_factory=time.time)
    explains: bool = True
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    learned: list[bytes] = field(default_factory=list)
    said: list[tuple[str, str, bool]] = field(default_factory=list)

    def transport(self) -> GrpcTransport:
        def credentials() -> Any:
            return self.key, mint(self.key, self.name, self.proof, self.made_at, self.days)

        ways = Ways(
            explain=self.believes.explain if self.explains else _nothing,
            learn=self._learn,
            say=lambda *what: self.said.append(what),
        )
        return GrpcTransport(
            Tls(
                credentials, self.believes.judge, lambda *what: self.refused.append(what), ways=ways
            )
        )

    def _learn(self, proof: bytes) -> bool:
        self.learned.append(proof)
        with contextlib.suppress(IdentityError):
            self.believes.take_revocation(proof)
        return self.believes.lost(keys.node_id(self.key), self.proof)


def _nothing(*_: str) -> bytes:
    return b""


def person(key: Ed25519PrivateKey, name: str, **more: Any) -> Person:
    return Person(key, name, trust(clock=time.time), **more)
