"""Hold the memory transport and the gRPC transport to the same contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from fednode.transports.address import RelayEntry
from fednode.transports.base import Address, OnFrame, Transport
from fednode.transports.grpc import GrpcTransport
from tests.contract.memory_transport import Hub, MemoryTransport
from tests.contract.transport_suite import GUARD_S, Make, TransportContract
from tests.meshes import Mesh


async def provide(build: Callable[[], Transport]) -> AsyncIterator[Make]:
    """Yield a maker of transports; close whatever it made."""
    made: list[Transport] = []

    def make() -> Transport:
        made.append(build())
        return made[-1]

    yield make
    await asyncio.gather(*(transport.close() for transport in made))


class TestMemory(TransportContract):
    @pytest.fixture
    async def make(self) -> AsyncIterator[Make]:
        hub = Hub()
        async for make in provide(lambda: MemoryTransport(hub)):
            yield make


class TestGrpc(TransportContract):
    @pytest.fixture
    async def make(self) -> AsyncIterator[Make]:
        async for make in provide(GrpcTransport):
            yield make


class TestGrpcOverTls(TransportContract):
    @pytest.fixture
    async def make(self) -> AsyncIterator[Make]:
        mesh = Mesh()
        yield lambda: mesh.transport("a")
        await mesh.close()


class Relayed(GrpcTransport):
    """A node that is dialled through a relay, by the name that listens at an address.

    names: the name of the node at each address, of all nodes of a test.
    """

    def __init__(self, mesh: Mesh, name: str, relay: RelayEntry, names: dict[Address, str]) -> None:
        self.name, self.names = name, names
        super().__init__(mesh.own(name), mesh.roster(), [relay])
        self.direct = False

    async def listen(self, address: Address, on_frame: OnFrame | None) -> Address:
        bound = await super().listen(address, on_frame)
        async with asyncio.timeout(GUARD_S):
            assert self.relay is not None
            await self.relay.up.wait()
        self.names[bound] = self.name
        return bound

    async def send(self, to: Address, frame: bytes, timeout_s: float, who: str = "") -> bytes:
        return await super().send(to, frame, timeout_s, self.names.get(to, "n39"))


class TestGrpcOverARelay(TransportContract):
    @pytest.fixture
    async def make(self) -> AsyncIterator[Make]:
        mesh, names, count = Mesh(), dict[Address, str](), iter(range(1, 30))
        relay = await mesh.relay()
        async for make in provide(lambda: Relayed(mesh, f"n{next(count)}", relay.at, names)):
            yield make
        await mesh.close()
