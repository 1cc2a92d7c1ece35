"""Limits on the calls of each key, checked before a byte of a call's message is asked for.

gRPC reads the whole request of a unary call before it calls the handler. Here every handler takes
its request as a stream, so a caller that may not call, or calls too often, is refused first.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio

from fednode.defects import reported
from fednode.identity.roster import Guest, Member, Roster
from fednode.transports.connection_limiter import ConnectionLimiter
from fednode.transports.credentials import chain_of
from fednode.transports.relay_service import DIAL, ENDLESS

CALLS_PER_KEY: Final = 32
STREAMS_PER_KEY: Final = 8
"""Streams of answers at a time, which are counted apart from the other calls."""
REQUEST_MAX_S: Final = 30.0
"""How long the request of a unary call may take to arrive."""
STREAM_MAX_S: Final = 3600.0
"""A stream of answers ends after this time, without an error; its reader asks again."""
ENROLMENT: Final = "/fednode.v1.Enrolment/"
"""The service that guests may call, and no other."""
REVOCATION: Final = "fednode-revocation-bin"
"""Trailing metadata of a refused call: the proof that the caller's key was revoked."""
FAILED: Final = "a defect of fednode ended this call; the log of the node that answers says where"
LOG: Final = logging.getLogger("fednode")
Note = Callable[[str, str, str], None]
"""Records a refused caller: kind, name or source, sentence."""
Opened = Callable[[bytes], Any] | None
"""Reads a request from its bytes; None leaves them as they are."""


class Limits(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Limit the calls of each caller, over all services together."""

    def __init__(self, roster: Roster | None, note: Note = lambda *_: None) -> None:
        """Set up. roster: None without keys. The relay's calls last, and it counts them itself."""
        self._roster, self._note = roster, note
        self.connections: ConnectionLimiter | None = None
        """Is told of calls and messages, if connections come in through it."""
        self._held: Counter[tuple[str, bool]] = Counter()
        self._reported = set[type[Exception]]()
        self._limited: dict[str, Any] = {}  # the handlers, by the method's name
        self._unknown = self._limit(grpc.stream_unary_rpc_method_handler(_unimplemented), "")

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        method = details.method
        if method not in self._limited:
            handler = await continuation(details)
            if handler is None:
                return self._unknown
            self._limited[method] = self._limit(handler, method)
        return self._limited[method]

    def _limit(self, handler: Any, method: str) -> Any:
        one, many = not handler.request_streaming, handler.response_streaming
        form = f"{'unary' if one else 'stream'}_{'stream' if many else 'unary'}"
        handle, opened = getattr(handler, form), handler.request_deserializer
        streams = many and method not in ENDLESS

        async def answer(requests: Any, context: Any) -> Any:
            seconds = STREAM_MAX_S if streams else None
            async with self._place(context, method, streams), _until(seconds):
                asked = await self._asked(requests, context, opened, one)
                if not inspect.isasyncgenfunction(handle):
                    return await handle(asked, context)
                async with contextlib.aclosing(handle(asked, context)) as answers:
                    async for reply in answers:
                        await context.write(reply)

        make = grpc.stream_unary_rpc_method_handler
        if many:
            make = grpc.stream_stream_rpc_method_handler
        return make(answer, None, handler.response_serializer)

    async def _asked(self, requests: Any, context: Any, opened: Opened, one: bool) -> Any:
        """Return the one request of a call, or its stream of requests."""
        found = self._requests(requests, context, opened)
        if not one:
            return found
        try:
            async with asyncio.timeout(REQUEST_MAX_S), contextlib.aclosing(found):
                async for request in found:
                    return request
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the request came too slowly")
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call without a request")

    async def _requests(
        self, requests: Any, context: Any, opened: Opened
    ) -> AsyncGenerator[Any, None]:
        """Yield the requests of a call, and say which bytes they explain."""
        limiter, peer = self.connections, context.peer()
        with limiter.reading(peer) if limiter is not None else contextlib.nullcontext():
            async for data in requests:
                if limiter is not None:
                    limiter.explains(peer, len(data))
                try:
                    request = data if opened is None else opened(data)
                except Exception:  # protobuf's errors have no common ancestor
                    text = "the request cannot be read"
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
                yield request

    @contextlib.asynccontextmanager
    async def _place(self, context: Any, method: str, streams: bool) -> AsyncIterator[None]:
        """Hold a place for a call; end the call if its caller may not call now."""
        caller = await self._admit(context, method)
        key = (caller, streams)
        most = STREAMS_PER_KEY if streams else CALLS_PER_KEY
        if caller and method not in ENDLESS and self._held[key] >= most:
            what = "streams" if streams else "calls"
            text = f"this key holds {most} {what} already; end one of them first"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._held[key] += 1
        try:
            yield
        except grpc.aio.BaseError:  # the handler ended the call
            raise
        except Exception as fault:
            await self._fail(fault, context)
        finally:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]

    async def _admit(self, context: Any, method: str) -> str:
        """Return the id behind a call; end the call if it is no member's, or one too many."""
        if self._roster is None:
            return ""
        chain = chain_of(context)
        caller = self._roster.identify(chain)
        denied = grpc.StatusCode.PERMISSION_DENIED
        if caller is None:
            proof = self._roster.proof(chain)
            why = self._roster.explain(chain)
            source = self.connections.source(context.peer()) if self.connections else ""
            self._note("revoked" if proof else "unknown", source, f"from {source}: {why}")
            more = ((REVOCATION, proof),) if proof else ()
            await context.abort(denied, why, trailing_metadata=more)
        assert isinstance(caller, Member | Guest)
        if isinstance(caller, Guest):
            fine = method == DIAL if caller.by else method.startswith(ENROLMENT)
            if not fine:
                await context.abort(denied, f"{caller.name} is invited, and no member yet")
        limiter = self.connections
        if limiter is not None and not limiter.calls(context.peer(), _account_of(caller)):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "this key is turned away")
        return caller.id

    async def _fail(self, fault: Exception, context: Any) -> None:
        """End a call that met a defect; the caller learns no details."""
        if type(fault) not in self._reported:  # a file for each kind, not for each call
            self._reported.add(type(fault))
            LOG.error("A call ended by %s", reported(fault))
        await context.abort(grpc.StatusCode.INTERNAL, FAILED)


def proofs_in(fault: grpc.aio.AioRpcError) -> list[bytes]:
    """Return the proofs of revocations with which a call was refused."""
    return [value for key, value in fault.trailing_metadata() or () if key == REVOCATION]


def _account_of(caller: Member | Guest) -> str:
    """Return whose account a caller's connections and calls are on.

    Whoever holds a link makes as many keys as it likes, so all of them have one account.
    """
    return f"{caller.by} {caller.name}" if isinstance(caller, Guest) else caller.id


async def _unimplemented(_: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this node has no such method")


@contextlib.asynccontextmanager
async def _until(seconds: float | None) -> AsyncIterator[None]:
    """End the block after some seconds, without an error."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
