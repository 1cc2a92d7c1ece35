"""Limits on the calls of each key: how many at a time, and how long a stream may last.

gRPC limits the calls of all callers together, so one caller could take every place. Here each key
has places of its own. Without keys, callers cannot be told apart and share gRPC's limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio

from fednode.defects import reported

CALLS_PER_KEY: Final = 64
STREAMS_PER_KEY: Final = 8
"""Streams of answers at a time, which are counted apart from the other calls."""
STREAM_MAX_S: Final = 3600.0
"""A stream of answers ends after this time, without an error; its reader asks again."""

FAILED: Final = "a defect of fednode ended this call; the log of the node that answers says where"
LOG: Final = logging.getLogger("fednode")


class Calls(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Limit the calls of each caller, over all services together."""

    def __init__(self, caller: Callable[[Any], str | None]) -> None:
        """Set the limits up. caller: returns the id behind a call; "" or None if it proves none."""
        self._caller = caller
        self._held: Counter[tuple[str, bool]] = Counter()
        self._reported = set[type[Exception]]()
        self._limited: dict[str, Any] = {}  # the handlers, by the method's name

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """Return the handler of a call, with the limits applied; None for an unknown method."""
        if details.method in self._limited:
            return self._limited[details.method]
        handler = await continuation(details)
        if handler is not None:
            self._limited[details.method] = self._limit(handler)
        return self._limited.get(details.method)

    def _limit(self, handler: Any) -> Any:
        streams = bool(handler.response_streaming)
        kind = f"{'stream' if handler.request_streaming else 'unary'}_"
        kind += "stream" if streams else "unary"
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        handle = (
            self._flow(getattr(handler, kind)) if streams else self._one(getattr(handler, kind))
        )
        return make(handle, handler.request_deserializer, handler.response_serializer)

    def _one(self, handle: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def answer(request: Any, context: Any) -> Any:
            try:
                if not self._caller(context):  # as in `_place`, without its cost
                    return await handle(request, context)
                async with self._place(context, streams=False):
                    return await handle(request, context)
            except grpc.aio.BaseError:  # the handler ended the call
                raise
            except Exception as fault:
                await self._fail(fault, context)

        return answer

    async def _fail(self, fault: Exception, context: Any) -> None:
        """End a call that met a defect; the caller learns no details."""
        if type(fault) not in self._reported:  # a file for each kind, not for each call
            self._reported.add(type(fault))
            LOG.error("A call ended by %s", reported(fault))
        await context.abort(grpc.StatusCode.INTERNAL, FAILED)

    def _flow(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        """Return a limited stream handler, for both forms that gRPC knows: generator and writer."""

        async def replies(request: Any, context: Any) -> AsyncIterator[Any]:
            async with (
                self._stream(context),
                contextlib.aclosing(handle(request, context)) as answers,
            ):
                async for answer in answers:
                    yield answer

        async def write(request: Any, context: Any) -> None:
            async with self._stream(context):
                await handle(request, context)

        return replies if inspect.isasyncgenfunction(handle) else write

    @contextlib.asynccontextmanager
    async def _stream(self, context: Any) -> AsyncIterator[None]:
        """Hold a place for a stream until STREAM_MAX_S; end the call if it meets a defect."""
        try:
            async with self._place(context, streams=True), _ending():
                yield
        except grpc.aio.BaseError:
            raise
        except Exception as fault:
            await self._fail(fault, context)

    @contextlib.asynccontextmanager
    async def _place(self, context: Any, streams: bool) -> AsyncIterator[None]:
        """Hold a place for a call; end the call if its caller holds too many."""
        caller = self._caller(context)
        if not caller:
            yield
            return
        most = STREAMS_PER_KEY if streams else CALLS_PER_KEY
        key = (caller, streams)
        if self._held[key] >= most:
            what = "streams" if streams else "calls"
            text = f"this key holds {most} {what} already; end one of them first"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._held[key] += 1
        try:
            yield
        finally:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]


@contextlib.asynccontextmanager
async def _ending() -> AsyncIterator[None]:
    """End the block after STREAM_MAX_S, without an error."""
    try:
        async with asyncio.timeout(STREAM_MAX_S) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
