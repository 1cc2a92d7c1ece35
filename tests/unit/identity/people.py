"""The certificates of a small mesh, for everybody's tests."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.identity import keys
from fednode.identity.certificates import Authority, Credential, Revocation
from fednode.identity.keys import id_of, pem_of, point_of
from fednode.identity.roster import Roster

MESH = "mesh"
NOW = 1_800_000_000


def invitation_key(token: bytes) -> bytes:
    """Return the public key of the invitation that a token stands for."""
    return point_of(Authority.invitation(token).key.public_key())


def credential_of(authority: Authority, name: str) -> Credential:
    """Return a new key, with a certificate that an authority signs."""
    key = ec.generate_private_key(ec.SECP256R1())
    return Credential(pem_of(key), authority.node(name, key.public_key()))


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

    def write(
        self, state: Path, name: str, days: float = 90, sponsor: Authority | None = None
    ) -> None:
        """Write the identity of a node into a state directory; that of `a` is a sponsor's."""
        folder = state / "identity"
        keys.store(folder / "node.key", self.key(name))
        (folder / "node.crt").write_bytes(self.chain(name, days, sponsor))
