"""The HTTP server of one node: metrics for Prometheus, health, and the page.

The node draws a token, which other users of the machine cannot read. It stands for the operator:
commands need it. By default the server listens on loopback without page.token, and all else needs
no token. The Host header must name loopback, so that a foreign site whose name was pointed here
reads nothing.

If page.token is set, as it must be off loopback, every request must show it or the operator's
token. page.token commands nothing, because programs that only read metrics have it, too. A request
shows a token in its Authorization header; a token in a cookie or an address is none. The page's
empty document (fednode.observe.page.FILES) and /healthz need no token; /healthz answers one word to
programs that start and stop containers.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Final, cast

from aiohttp import web

from fednode.core.view import Life
from fednode.errors import AddressError, ConfigError, FednodeError, Refused
from fednode.observe.page import FILES, KNOWN, Page, Reader
from fednode.observe.status import NodeService
from fednode.settings.output import PageSettings
from fednode.transports.address import Endpoint, parse
from fednode.transports.server import check_free

HEALTH: Final = "/healthz"
CLOSE_S: Final = 0.5
CONNECTIONS_MAX: Final = 64
REQUEST_MAX_S: Final = 10.0
LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def admissible(address: str, token: str) -> Endpoint:
    """Return the endpoint of a page; raise AddressError or ConfigError if it is not allowed."""
    endpoint = parse(address)
    if not endpoint.loopback and not token:
        raise ConfigError(
            f"page.listen is {address}, which others reach, and page.token is not set: set one of "
            "16 characters or more, or listen on 127.0.0.1."
        )
    check_free(endpoint)
    return endpoint


class Doorway(asyncio.Protocol):
    """One connection, in front of the protocol that speaks HTTP on it.

    An HTTP server waits without limit for the end of a request's headers. Here each connection has
    some seconds from one request to the next. If too many are open, the one that has waited longest
    without a request is dropped.
    """

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


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Web:
    """Serve one node over HTTP."""

    def __init__(
        self,
        service: NodeService,
        metrics: Callable[[], tuple[bytes, str]],
        settings: PageSettings,
        drawn: str = "",
    ) -> None:
        """Set up. metrics: returns the metrics in the exposition format, and its content type.

        drawn: the operator's token; "" takes no commands.
        """
        self._service, self._metrics = service, metrics
        self._closed = bool(settings.token)
        self._tokens: dict[Reader, str] = {"member": settings.token or "", "operator": drawn}
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._open: dict[Doorway, None] = {}
        self._loopback = True

    async def listen(self, address: str) -> str:
        """Serve at an address; return the page's URL. Raise AddressError or ConfigError."""
        endpoint = admissible(address, self._tokens["member"])
        self._loopback = endpoint.loopback
        app = web.Application(middlewares=[self._guard], client_max_size=1 << 10)
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_get(HEALTH, self._show_health)
        Page(self._service, self._reader).add_to(app.router)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=CLOSE_S
        )
        await self._runner.setup()
        http = self._runner.server
        assert http is not None
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: Doorway(http(), self._open), endpoint.numeric, endpoint.port
            )
        except OSError as fault:
            await self.close()
            raise AddressError(
                f"page.listen is {address}, which cannot be listened on: {fault.strerror}; choose "
                "another, or null for no page"
            ) from fault
        port = int(self._server.sockets[0].getsockname()[1])
        return f"http://{Endpoint(endpoint.host, port)}/"

    async def close(self) -> None:
        """Stop serving; open streams are cut. Idempotent."""
        if self._server is not None:
            self._server.close()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        door = None if request.transport is None else request.transport.get_protocol()
        if isinstance(door, Doorway):
            door.busy()
        try:
            if request.path != HEALTH:
                self._admit(request)
            answer = await handler(request)
        except Refused as fault:
            raise web.HTTPServiceUnavailable(text=f"{fault}\n") from fault
        except FednodeError as fault:
            raise web.HTTPBadRequest(text=f"{fault}\n") from fault
        finally:
            if isinstance(door, Doorway):
                door.wait()
        if not answer.prepared:
            answer.headers.update(HEADERS)
        return answer

    def _admit(self, request: web.Request) -> None:
        """Raise the response for a reader who may not read."""
        if self._closed and request.path not in FILES and self._reader(request) not in KNOWN:
            raise web.HTTPUnauthorized(
                text="a token is needed: open the page at /#token=..., or send it as a bearer\n",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if not self._closed and self._loopback and (request.url.host or "") not in LOCAL:
            raise web.HTTPForbidden(text="this page is for its own machine only\n")

    def _reader(self, request: web.Request) -> Reader:
        """Return whose token a request shows; the operator's counts before page.token.

        Comparisons take constant time.
        """
        authorization = request.headers.get("Authorization", "")
        given = authorization.removeprefix("Bearer ").encode(errors="replace")
        reader: Reader = "stranger" if authorization else "visitor"
        for name, token in self._tokens.items():
            if token and hmac.compare_digest(given, token.encode()):
                reader = name
        return reader

    async def _show_metrics(self, request: web.Request) -> web.Response:
        text, kind = self._metrics()
        return web.Response(body=text, headers={"Content-Type": kind})

    async def _show_health(self, request: web.Request) -> web.Response:
        life = self._service.now().life
        away = life in {Life.LOADING, Life.LEAVING, Life.STOPPING}
        return web.Response(text=f"{life}\n", status=503 if away else 200)
