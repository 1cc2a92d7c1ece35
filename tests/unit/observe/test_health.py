"""Health as tools ask for it, with a key of the mesh, at the node's own address."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fednode.observe.health import NODE, HealthService
from tests.meshes import Mesh

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def test_health_follows_the_nodes_life() -> None:
    mesh, health = Mesh(), HealthService()
    node, caller = mesh.transport("a"), mesh.transport("b")
    node.add_service(health.register)
    await health.loading()
    channel = await caller.channel(await node.listen("127.0.0.1:0", None), "a")
    stub = health_pb2_grpc.HealthStub(channel)

    async def check(name: str) -> int:
        reply = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=180)
        return int(reply.status)

    try:
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
    finally:
        await channel.close()
        await caller.close()
        await node.close()
