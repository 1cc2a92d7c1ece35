"""A small mesh of certificates, for tests and measurements."""

from __future__ import annotations

from fednode.transports.grpc_transport import GrpcTransport
from tests.unit.identity.people import SmallMesh


class Mesh(SmallMesh):
    """A root, a sponsor, and what they sign."""

    @classmethod
    def new(cls, name: str = "mesh") -> Mesh:
        return cls(name)

    def transport(self, name: str, **more: object) -> GrpcTransport:
        return GrpcTransport(self.own(name), self.roster(), **more)  # type: ignore[arg-type]
