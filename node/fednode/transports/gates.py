"""The addresses at which a node takes connections, and whether a port is free."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fednode.errors import AddressError
from fednode.transports.address import Endpoint

MOVE_GRACE_S: Final = 60.0
"""How long a node that moved takes connections at its address before."""
BACKLOG: Final = 256

Enter = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Gates:
    """The open gates of one node by address: one, and for a while after a move two."""

    def __init__(self, enter: Enter, limit: int) -> None:
        """Set up. enter: serves a connection. limit: bytes that one may hold unread."""
        self._enter, self._limit = enter, limit
        self._open: dict[Endpoint, asyncio.Server] = {}
        self._leaving: dict[Endpoint, asyncio.TimerHandle] = {}

    async def open(self, endpoint: Endpoint) -> int:
        """Take connections at an address, too; return the port. Raise AddressError if that fails.

        An address that was to be left soon is kept.
        """
        leaving = self._leaving.pop(endpoint, None)
        if leaving is not None:
            leaving.cancel()
            return endpoint.port
        try:
            server = await asyncio.start_server(
                self._enter, endpoint.numeric, endpoint.port, limit=self._limit, backlog=BACKLOG
            )
        except OSError as fault:
            reason = fault.strerror or str(fault)
            raise AddressError(f"cannot listen on {endpoint}: {reason}; choose another") from fault
        port = int(server.sockets[0].getsockname()[1])
        self._open[endpoint.at(port)] = server
        return port

    def leave(self, endpoint: Endpoint) -> None:
        """Take no new connections at an address after MOVE_GRACE_S."""
        if endpoint in self._open and endpoint not in self._leaving:
            loop = asyncio.get_running_loop()
            self._leaving[endpoint] = loop.call_later(MOVE_GRACE_S, self.shut, endpoint)

    def shut(self, endpoint: Endpoint) -> None:
        """Take no new connections at an address; those that are open go on."""
        self._leaving.pop(endpoint, None)
        self._open.pop(endpoint).close()

    def close(self) -> None:
        """Take no connections any more. Idempotent."""
        for timer in self._leaving.values():
            timer.cancel()
        self._leaving.clear()
        for endpoint in tuple(self._open):
            self.shut(endpoint)


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
