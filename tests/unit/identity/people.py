"""Keys, leases and transports of a small mesh, for the tests of identity."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.errors import IdentityError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.certificate import mint
from fednode.identity.certificates import Authority, Credential, id_of, pem_of
from fednode.identity.lease import DAY_S, Statement
from fednode.identity.revocations import Revocation
from fednode.identity.roster import Roster
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


class SmallMesh:
    """The certificates of a small mesh: its mesh key, and a sponsor `a` that signs all nodes.

    keys: of the nodes, made when they are asked for.
    """

    def __init__(self, mesh: str = MESH) -> None:
        self.mesh, self.mesh_key = mesh, Ed25519PrivateKey.generate()
        self.keys: dict[str, ec.EllipticCurvePrivateKey] = {}
        self.sponsor = self.sponsor_of("a")

    @property
    def root(self) -> Authority:
        return Authority.root(self.mesh, self.mesh_key)

    def key(self, name: str) -> ec.EllipticCurvePrivateKey:
        if name not in self.keys:
            self.keys[name] = ec.generate_private_key(ec.SECP256R1())
        return self.keys[name]

    def id(self, name: str) -> str:
        return id_of(self.key(name).public_key())

    def sponsor_of(self, name: str, days: float = 365) -> Authority:
        """Return the authority of a node that the mesh key made a sponsor."""
        certificate = self.root.sponsor(name, self.key(name).public_key(), days)
        return Authority(f"sponsor {name}", self.key(name), certificate)

    def chain(
        self, name: str, days: float = 90, sponsor: Authority | None = None, dated: float = 0.0
    ) -> bytes:
        """Return a new certificate of a node, with its sponsor's, in PEM.

        days: how long it holds. dated: days from now at which it was made, to the second.
        """
        now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)

        class Then(datetime.datetime):
            @classmethod
            def now(cls, tz: datetime.tzinfo | None = None) -> Then:
                moment = now + datetime.timedelta(days=dated)
                return cls.fromtimestamp(moment.timestamp(), tz)

        with patch("fednode.identity.certificates.datetime.datetime", Then):
            return (sponsor or self.sponsor).node(name, self.key(name).public_key(), days)

    def credential(self, name: str, days: float = 90) -> Credential:
        return Credential(pem_of(self.key(name)), self.chain(name, days))

    def own(self, name: str) -> Callable[[], Credential]:
        shown = self.credential(name)
        return lambda: shown

    def roster(self, *names: str, **more: Any) -> Roster:
        """Return a roster of the mesh that has met some nodes."""
        roster = Roster(self.mesh, self.mesh_key.public_key(), **more)
        for name in names:
            assert roster.identify(self.chain(name))
        return roster

    def revocation(self, name: str, id: str = "", moment: int = NOW) -> bytes:
        return Revocation(self.mesh, name, id or self.id(name), moment).sign(self.mesh_key)

    @property
    def mesh_key_text(self) -> str:
        """The public half of the mesh key, as peers.yaml has it."""
        return keys.written(self.mesh_key.public_key())

    def write(self, state: Path, name: str, days: float = 90, sponsor: bool = False) -> None:
        """Write the identity of a node into a state directory."""
        folder = state / "identity"
        keys.keep(folder / "node.key", self.key(name))
        (folder / "node.crt").write_bytes(self.chain(name, days))
        if sponsor:
            (state / "enrolment").mkdir()
            (state / "enrolment" / "sponsor.crt").write_bytes(self.sponsor_of(name).chain)
