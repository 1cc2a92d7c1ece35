"""The address at which a node takes connections, and whether a port is free."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fednode.errors import AddressError
from fednode.transports.address import Endpoint

BACKLOG: Final = 256

Enter = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


async def open_gate(endpoint: Endpoint, enter: Enter, limit: int) -> asyncio.Server:
    """Take connections at an address; raise AddressError if that fails.

    enter: serves a connection. limit: bytes that one may hold unread.
    """
    try:
        return await asyncio.start_server(
            enter, endpoint.numeric, endpoint.port, limit=limit, backlog=BACKLOG
        )
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise AddressError(f"cannot listen on {endpoint}: {reason}; choose another") from fault


def check_free(endpoint: Endpoint) -> None:
    """Raise AddressError if the port cannot be bound.

    The operating system is asked first because it gives a reason; gRPC would give none and write to
    stderr.
    """
    family = socket.AF_INET6 if ":" in endpoint.numeric else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As gRPC's own socket: a port whose last connections linger counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((endpoint.numeric, endpoint.port))
    except OSError as fault:
        if fault.errno == errno.EADDRINUSE:
            raise in_use(endpoint) from fault
        reason = fault.strerror or str(fault)
        raise AddressError(f"cannot listen on {endpoint}: {reason}; choose another") from fault


def in_use(endpoint: Endpoint) -> AddressError:
    """Return what to say of a port that is taken."""
    return AddressError(
        f"cannot listen on {endpoint}: the port {endpoint.port} is in use; "
        "stop the other process or choose another port"
    )
