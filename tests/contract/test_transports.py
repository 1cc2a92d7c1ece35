"""Hold the memory transport and the gRPC transport to the same contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from fednode.transports.base import Address, OnFrame, Transport
from fednode.transports.grpc import GrpcTransport
from tests.contract.memory_transport import Hub, MemoryTransport
from tests.contract.transport_suite import Make, TransportContract
from tests.unit.identity.people import A, person
from tests.unit.transports.relays import Node, raised


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


class TestGrpcOverTls(TransportContract):
    @pytest.fixture
    async def make(self) -> AsyncIterator[Make]:
        one = person(A, "a")
        async for make in provide(one.transport):
            yield make


class TestGrpc(TransportContract):
    @pytest.fixture
    async def make(self) -> AsyncIterator[Make]:
        async for make in provide(GrpcTransport):
            yield make


class Relayed(Node):
    """A node that is dialled through a relay, by the name that listens at an address.

    names: the name of the node at each address, of all nodes of a test.
    """

    names: dict[Address, str]

    async def listen(self, address: Address, on_frame: OnFrame | None) -> Address:
        found = await super().listen(address, on_frame)
        self.names[found] = self.name
        return found

    async def send(self, to: Address, frame: bytes, timeout_s: float, who: str = "") -> bytes:
        return await super().send(to, frame, timeout_s, self.names.get(to, "n39"))


class TestGrpcOverARelay(TransportContract):
    @pytest.fixture
    async def make(self) -> AsyncIterator[Make]:
        async with raised() as relay:
            names: dict[Address, str] = {}
            count = iter(range(1, 30))

            def build() -> Relayed:
                one = Relayed(f"n{next(count)}", relay.at)
                one.names = names
                return one

            async for make in provide(build):
                yield make
