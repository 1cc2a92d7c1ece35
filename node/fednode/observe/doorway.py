"""Limits on connections to the page: their number, and the time without a request.

An HTTP server waits without limit for the end of a request's headers. Here each connection has some
seconds from one request to the next. If too many connections are open, the connection that has
waited longest without a request is dropped.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

CONNECTIONS_MAX: Final = 64
REQUEST_MAX_S: Final = 10.0


class Doorway(asyncio.Protocol):
    """One connection, in front of the protocol that speaks HTTP on it."""

    def __init__(self, inside: asyncio.Protocol, open_: dict[Doorway, None]) -> None:
        """Set up. open_: all connections of a server, in the order in which they began to wait."""
        self._inside, self._open = inside, open_
        self._waits: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept a connection; if there are too many, drop an idle connection or this one."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's have no common ancestor
        if len(self._open) >= CONNECTIONS_MAX:
            waiting = (connection for connection in self._open if connection._waits is not None)
            next(waiting, self)._drop()
        self._open[self] = None
        self._inside.connection_made(transport)
        self.wait()

    def busy(self) -> None:
        """Note that a whole request arrived."""
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def wait(self) -> None:
        """Give the other end REQUEST_MAX_S for its next request."""
        self.busy()
        if self in self._open:
            self._open[self] = self._open.pop(self)  # move to the end
            loop = asyncio.get_running_loop()
            self._waits = loop.call_later(REQUEST_MAX_S / 2, self._late)

    def _late(self) -> None:
        """Wait once more: after a stall of this process a request may lie here unread."""
        self._waits = asyncio.get_running_loop().call_later(REQUEST_MAX_S / 2, self._drop)

    def _drop(self) -> None:
        self.busy()
        self._open.pop(self, None)
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, fault: Exception | None) -> None:
        self.busy()
        self._open.pop(self, None)
        self._inside.connection_lost(fault)

    def data_received(self, data: bytes) -> None:
        self._inside.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inside.eof_received()

    def pause_writing(self) -> None:
        self._inside.pause_writing()

    def resume_writing(self) -> None:
        self._inside.resume_writing()
