"""OpenTelemetry of one node: a trace of each round, pushed to a collector.

A round is a span from its beginning until it is adopted, its tunings are spans within, and its
messages are events of it. A collector that does not answer costs one warning, and nothing else.
Metrics are not pushed: a collector reads `/metrics` (node/fednode/observe/metrics.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import Span, set_span_in_context

from fednode import __version__
from fednode.core.events import Record
from fednode.observe.events import Events, Logged

TIMEOUT_S: Final = 5.0
SPAN_EVENTS: Final = ("message.sent", "message.received", "round.merged", "round.deadline")
NS: Final = 1_000_000_000


class Otel:
    """Push one node's traces to a collector, from `begin` until `close`."""

    def __init__(self, endpoint: str, labels: Mapping[str, str], events: Events) -> None:
        """Endpoint: of OTLP over HTTP, such as http://127.0.0.1:4318. labels: node, mesh."""
        self._endpoint = endpoint.rstrip("/")
        self._events = events
        resource = Resource.create(
            {
                "service.name": "fednode",
                "service.namespace": labels["mesh"],
                "service.instance.id": labels["node"],
                "service.version": __version__,
            }
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        spans = _Exporter(f"{self._endpoint}/v1/traces", self._exported)
        self._provider.add_span_processor(BatchSpanProcessor(spans))
        self._tracer = self._provider.get_tracer("fednode", __version__)
        self._round: Span | None = None
        self._well = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._following: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Follow the node from now on."""
        # The library logs each failure with a traceback; `_note` says it once, in a sentence.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._loop = asyncio.get_running_loop()
        self._following = asyncio.create_task(self._trace())

    async def close(self) -> None:
        """Push what is left, for no longer than it may take. Idempotent."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TIMEOUT_S):
                    await asyncio.to_thread(self._provider.shutdown)

    def _exported(self, well: bool) -> None:
        """Take from the SDK's thread whether the collector took the latest spans."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._note, well)

    def _note(self, well: bool) -> None:
        if not well and self._well:
            text = f"the collector at {self._endpoint} (otel.endpoint) takes no traces: is it up?"
            self._events.record(Record("otel.failed", text, "warning"))
        self._well = well

    async def _trace(self) -> None:
        async for logged in self._events.follow(0, "debug"):
            self.trace(logged)

    def trace(self, logged: Logged) -> None:
        """Take one record into the trace of its round."""
        record, at = logged.record, int(logged.time * NS)
        if record.kind == "round.began":
            self._round = self._tracer.start_span("round", start_time=at, attributes=_plain(record))
        span = self._round
        if span is None:
            return
        if record.kind == "tune.done":
            seconds = float(str(record.fields.get("seconds", 0.0)))
            tuning = self._tracer.start_span(
                "tune",
                context=set_span_in_context(span),
                start_time=at - int(seconds * NS),
                attributes=_plain(record),
            )
            tuning.end(at)
        elif record.kind == "round.adopted":
            span.set_attributes(_plain(record))
            span.end(at)
            self._round = None
        elif record.kind in SPAN_EVENTS or record.level in {"warning", "error"}:
            span.add_event(record.kind, {"text": record.text, **_plain(record)}, at)


class _Exporter(OTLPSpanExporter):
    """OpenTelemetry's exporter, which tells after each push whether the collector took it."""

    def __init__(self, endpoint: str, told: Callable[[bool], None]) -> None:
        super().__init__(endpoint, timeout=TIMEOUT_S)
        self._told = told

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Push spans; never raise for a collector that is away."""
        try:
            result = super().export(spans)
        except OSError:
            result = SpanExportResult.FAILURE
        self._told(result is SpanExportResult.SUCCESS)
        return result


def _plain(record: Record) -> dict[str, str | int | float | bool]:
    """Return a record's facts as attributes, in fednode's own name space."""
    return {
        f"fednode.{key}": value if isinstance(value, str | int | float | bool) else str(value)
        for key, value in record.fields.items()
    }
