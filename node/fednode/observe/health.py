"""Health checks on the node's own address: grpc.health.v1.

The service knows two names here. "" serves from the first moment until the node drains.
"fednode.v1.Node" serves when model and images are loaded.
"""

from __future__ import annotations

from typing import Any, Final

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from fednode.wire.gen import status_pb2

NODE: Final = status_pb2.DESCRIPTOR.services_by_name["Node"].full_name


class HealthService:
    def __init__(self) -> None:
        self._servicer = health.aio.HealthServicer()

    def register(self, server: Any) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def loading(self) -> None:
        """Report that the process serves and the node does not yet."""
        await self._servicer.set("", health_pb2.HealthCheckResponse.SERVING)
        await self._servicer.set(NODE, health_pb2.HealthCheckResponse.NOT_SERVING)

    async def serving(self) -> None:
        """Report that the node takes part in rounds."""
        await self._servicer.set(NODE, health_pb2.HealthCheckResponse.SERVING)

    async def draining(self) -> None:
        """Report that nothing serves any more; later reports change nothing."""
        await self._servicer.enter_graceful_shutdown()
