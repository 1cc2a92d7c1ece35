"""Hold the prototype to the contract of transports."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from fednode.transports.address import parse
from fednode.transports.base import Address, OnFrame
from fednode.transports.grpc_transport import GrpcTransport
from fednode.transports.limits import Limits
from fednode.transports.relay_client import RelayAt, RelayClient
from fednode.transports.relay_service import DIAL, TAKE, RelayService
from fednode.transports.server import Server
from tests.contract.test_transports import provide
from tests.contract.transport_suite import Make, Stuck, TransportContract
from tests.proto.mesh import Mesh


class TestGrpc(TransportContract):
    @pytest.fixture
    async def make(self) -> AsyncIterator[Make]:
        async for make in provide(GrpcTransport):
            yield make


class TestGrpcOverTls(TransportContract):
    @pytest.fixture
    async def make(self) -> AsyncIterator[Make]:
        mesh = Mesh.new()
        async for make in provide(lambda: mesh.transport("a")):
            yield make


@contextlib.asynccontextmanager
async def raised(mesh: Mesh, name: str = "relay") -> AsyncIterator[RelayAt]:
    """Run a relay."""
    roster = mesh.roster()
    service = RelayService(roster)
    limits = Limits(roster, endless=frozenset((DIAL, TAKE)))
    server = Server(mesh.own(name), roster, limits)
    at = await server.start(parse("127.0.0.1:0"), [service.register])
    try:
        yield RelayAt(str(at), name)
    finally:
        await server.close()


class Relayed(GrpcTransport):
    """A node that is dialled through a relay, by the name that listens at an address.

    names: the name of the node at each address, of all nodes of a test.
    """

    def __init__(self, mesh: Mesh, name: str, relay: RelayAt, names: dict[Address, str]) -> None:
        own, roster = mesh.own(name), mesh.roster()
        self.name, self.names = name, names
        self.client = RelayClient([relay], own, roster)
        super().__init__(own, roster, self.client, reach="relay")
        self._through, self.send = self.send, self.send_by_name

    async def listen(self, address: Address, on_frame: OnFrame | None) -> Address:
        found = await super().listen(address, on_frame)
        async with asyncio.timeout(10):
            while not self.client.up:
                await asyncio.sleep(0.01)
        self.names[found] = self.name
        return found

    async def send_by_name(
        self, to: Address, frame: bytes, timeout_s: float, who: str = ""
    ) -> bytes:
        return await self._through(to, frame, timeout_s, self.names.get(to, "n39"))


class TestGrpcOverARelay(TransportContract):
    @pytest.fixture
    async def make(self) -> AsyncIterator[Make]:
        mesh = Mesh.new()
        async with raised(mesh) as relay:
            names: dict[Address, str] = {}
            count = iter(range(1, 30))
            async for make in provide(lambda: Relayed(mesh, f"n{next(count)}", relay, names)):
                yield make


class TestConnectionLimiter:
    async def test_a_call_that_is_given_up_leaves_no_room_behind(self) -> None:
        mesh = Mesh.new()
        server, sender = mesh.transport("v"), mesh.transport("a")
        stuck = Stuck()
        to = await server.listen("127.0.0.1:0", stuck)
        for size in (10, 1 << 20):
            call = asyncio.ensure_future(sender.send(to, bytes(size), 20.0, "v"))
            await stuck.taken.wait()
            call.cancel()
        await sender.close()
        limiter = server._server.connections  # type: ignore[union-attr]
        async with asyncio.timeout(10):
            while any(one.reading for one in limiter._accounts.values()):  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
        await server.close()
