"""Health checks, and a plain port on loopback for tools: status, health and reflection.

grpc.health.v1 knows two names here. "" serves from the first moment until the node drains.
"fednode.v1.Node" serves when model and images are loaded. The admin port takes no commands.
"""

from __future__ import annotations

from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from fednode.errors import AddressError
from fednode.observe.status import NodeService, ReadOnly
from fednode.transports.address import Endpoint, parse
from fednode.transports.gates import check_free
from fednode.wire.gen import status_pb2, status_pb2_grpc

NODE: Final = status_pb2.DESCRIPTOR.services_by_name["Node"].full_name
CALLS_MAX: Final = 64
_OPTIONS: Final = (("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 1 << 16))


class HealthService:
    """The health service (grpc.health.v1) of one node."""

    def __init__(self) -> None:
        self._servicer = health.aio.HealthServicer()

    def register(self, server: Any) -> None:
        """Add the health service to a grpc.aio server."""
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


class Admin:
    """The admin port, without keys and on loopback."""

    def __init__(self, service: NodeService, checks: HealthService) -> None:
        self._service, self._health = service, checks
        self._server: Any = None

    async def listen(self, address: str) -> str:
        """Serve at an address of this machine; return the address bound. Raise AddressError."""
        endpoint = parse(address)
        if not endpoint.loopback:
            raise AddressError(
                f"admin.listen is {address}: the admin port speaks without keys and stays on "
                "loopback; use 127.0.0.1, [::1] or localhost"
            )
        check_free(endpoint)
        server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
        status_pb2_grpc.add_NodeServicer_to_server(ReadOnly(self._service), server)
        self._health.register(server)
        reflection.enable_server_reflection(
            (NODE, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        port = server.add_insecure_port(str(Endpoint(endpoint.numeric, endpoint.port)))
        self._server = server
        await server.start()
        return str(endpoint.at(port))

    async def close(self) -> None:
        """Stop serving. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(0.5)
