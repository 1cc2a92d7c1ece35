"""Health and reflection as tools ask for them, on a port that takes no commands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fednode.errors import AddressError, Refused
from fednode.observe.admin import NODE, Admin, HealthService
from fednode.observe.client import Client
from fednode.observe.status import NodeService
from fednode.storage.store import Store
from tests.unit.runtime.daemons import ABOUT

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@asynccontextmanager
async def admin(folder: Path) -> AsyncIterator[tuple[HealthService, str]]:
    store, health = Store(folder), HealthService()
    port = Admin(NodeService(store, ABOUT), health)
    await health.loading()
    yield health, await port.listen("127.0.0.1:0")
    await port.close()
    await port.close()
    store.close()


async def test_health_follows_the_nodes_life(tmp_path: Path) -> None:
    async with admin(tmp_path) as (health, where), grpc.aio.insecure_channel(where) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        async def check(name: str) -> int:
            reply = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=180)
            return int(reply.status)

        assert NODE == "fednode.v1.Node"
        assert (await check(""), await check(NODE)) == (SERVING, NOT_SERVING)
        await health.serving()
        assert (await check(""), await check(NODE)) == (SERVING, SERVING)
        watching = stub.Watch(health_pb2.HealthCheckRequest(service=NODE), timeout=180)
        assert (await watching.read()).status == SERVING
        await health.draining()
        assert (await watching.read()).status == NOT_SERVING
        watching.cancel()
        assert (await check(""), await check(NODE)) == (NOT_SERVING, NOT_SERVING)
        await health.serving()  # a model that has loaded too late
        assert await check(NODE) == NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await check("nobody")
        assert unknown.value.code() == grpc.StatusCode.NOT_FOUND


async def test_reflection_lists_what_there_is(tmp_path: Path) -> None:
    async with admin(tmp_path) as (_, where), grpc.aio.insecure_channel(where) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        call = stub.ServerReflectionInfo(iter([ask]), timeout=180)
        reply = await call.read()
        names = {one.name for one in reply.list_services_response.service}
        assert {NODE, "grpc.health.v1.Health"} <= names
        ask = reflection_pb2.ServerReflectionRequest(file_containing_symbol=NODE)
        reply = await stub.ServerReflectionInfo(iter([ask]), timeout=180).read()
        assert reply.file_descriptor_response.file_descriptor_proto


async def test_it_answers_and_takes_no_commands(tmp_path: Path) -> None:
    async with admin(tmp_path) as (_, where), Client(timeout_s=20) as client:
        assert (await client.status(where)).name == "a"
        assert await client.history(where) == []
        assert [one async for one in client.watch(where, follow=False)] == []
        for command in ("pause", "leave", "revoke"):
            with pytest.raises(Refused, match="takes commands on its own address only"):
                await client.control(where, command)


@pytest.mark.parametrize("where", ["0.0.0.0:0", "192.0.2.1:7100", "example.org:1"])
async def test_it_stays_on_this_machine(tmp_path: Path, where: str) -> None:
    store = Store(tmp_path)
    with pytest.raises(AddressError, match=f"admin.listen is {where}.*stays on loopback"):
        await Admin(NodeService(store, ABOUT), HealthService()).listen(where)
    store.close()
