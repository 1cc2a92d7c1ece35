"""A small mesh of certificates, for tests."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fednode.identity.certificates import Credential
from fednode.identity.roster import Roster
from fednode.transports.address import RelayEntry
from fednode.transports.grpc import GrpcTransport
from fednode.transports.relay_service import RelayService
from tests.unit.identity.people import SmallMesh


class Mesh(SmallMesh):
    """A mesh whose nodes speak TLS, and may have relays."""

    @classmethod
    def new(cls, name: str = "mesh") -> Mesh:
        return cls(name)

    def transport(
        self,
        name: str,
        *relays: RelayEntry,
        own: Credential | None = None,
        roster: Roster | None = None,
        **more: Any,
    ) -> GrpcTransport:
        """Return the transport of a node. own: what it shows. more: as GrpcTransport."""
        shown, known = own or self.credential(name), roster or self.roster()
        return GrpcTransport(lambda: shown, known, relays, **more)

    @contextlib.asynccontextmanager
    async def relay(self, name: str = "relay") -> AsyncIterator[RunningRelay]:
        """Run a relay."""
        running = RunningRelay(self, name)
        running.at = RelayEntry(name, await running.start("127.0.0.1:0"))
        try:
            yield running
        finally:
            await running.server.close()


class RunningRelay:
    """A relay of a mesh, in this process."""

    at: RelayEntry

    def __init__(self, mesh: Mesh, name: str) -> None:
        self.roster = mesh.roster()
        self.service = RelayService(self.roster)
        self.server = GrpcTransport(mesh.own(name), self.roster)
        self.server.add_service(self.service.register)

    async def start(self, address: str) -> str:
        return await self.server.listen(address, None)
