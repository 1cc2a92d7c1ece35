"""A small mesh of certificates, for tests and measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.identity.certificates import Authority, Credential
from fednode.identity.roster import Roster
from fednode.transports.grpc_transport import GrpcTransport


@dataclass
class Mesh:
    """A root, a sponsor, and what they sign."""

    root: Authority
    sponsor: Authority

    @classmethod
    def new(cls, name: str = "mesh") -> Mesh:
        root = Authority.root(name, Ed25519PrivateKey.generate())
        return cls(root, root.sponsor("a", Ed25519PrivateKey.generate()))

    def roster(self) -> Roster:
        return Roster(self.root.anchor())

    def own(self, name: str) -> Callable[[], Credential]:
        made = self.sponsor.credential(name)
        return lambda: made

    def transport(self, name: str, **more: object) -> GrpcTransport:
        return GrpcTransport(self.own(name), self.roster(), **more)  # type: ignore[arg-type]
