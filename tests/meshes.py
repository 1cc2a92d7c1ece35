"""A small mesh of certificates, for tests."""

from __future__ import annotations

import contextlib
from typing import Any

from fednode.identity.certificates import Credential
from fednode.identity.roster import Roster
from fednode.transports.address import RelayEntry
from fednode.transports.grpc import GrpcTransport
from fednode.transports.relay_service import RelayService
from tests.unit.identity.people import SmallMesh


class Mesh(SmallMesh):
    """A mesh whose nodes speak TLS, and may have relays. `close` closes them all."""

    def __init__(self, name: str = "mesh") -> None:
        super().__init__(name)
        self._open = contextlib.AsyncExitStack()
        self.close = self._open.aclose

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
        made = GrpcTransport(lambda: shown, known, relays, **more)
        self._open.push_async_callback(made.close)
        return made

    async def channel(self, name: str, to: str, who: str, own: Credential | None = None) -> Any:
        """Return a channel of a node to another one."""
        channel = await self.transport(name, own=own).channel(to, who)
        self._open.push_async_callback(channel.close)
        return channel

    async def relay(self, name: str = "relay") -> RunningRelay:
        """Run a relay."""
        running = RunningRelay(self, name)
        running.at = RelayEntry(name, await running.start("127.0.0.1:0"))
        self._open.push_async_callback(running.server.close)
        return running


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
