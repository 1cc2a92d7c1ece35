"""Hold the memory transport and the gRPC transport to the same contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from fednode.transports.base import Transport
from fednode.transports.grpc import GrpcTransport
from tests.contract.memory_transport import Hub, MemoryTransport
from tests.contract.transport_suite import Make, TransportContract
from tests.unit.identity.people import A, person


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
