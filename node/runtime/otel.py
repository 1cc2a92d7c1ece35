"""OpenTelemetry of one node: the same metrics as for Prometheus, pushed, and a trace of each round.

A round is a span from its beginning until it is adopted, its tunings are spans within, and its
messages are events of it. A collector that does not answer costs one warning, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Span, set_span_in_context

from node import __version__
from node.core.events import Record
from node.runtime.events import Events, Logged
from node.runtime.metrics import Family

TIMEOUT_S: Final = 5.0
SPAN_EVENTS: Final = ("message.sent", "message.received", "round.merged", "round.deadline")
NS: Final = 1_000_000_000
UNITS: Final = {"seconds": "s", "bytes": "By", "ratio": "1"}
INFINITE: Final = "+Inf"


class Otel:
    """Push one node's metrics and traces to a collector, from `begin` until `close`."""

    def __init__(
        self,
        endpoint: str,
        labels: Mapping[str, str],
        events: Events,
        families: Callable[[], Iterable[Family]],
        every_s: float,
    ) -> None:
        """Endpoint: of OTLP over HTTP, such as http://127.0.0.1:4318. labels: node, mesh."""
        self._endpoint = endpoint.rstrip("/")
        self._events, self._families, self._every_s = events, families, every_s
        self._resource = Resource.create(
            {
                "service.name": "fednode",
                "service.namespace": labels["mesh"],
                "service.instance.id": labels["node"],
                "service.version": __version__,
            }
        )
        self._exporter = OTLPMetricExporter(f"{self._endpoint}/v1/metrics", timeout=TIMEOUT_S)
        self._provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
        spans = OTLPSpanExporter(f"{self._endpoint}/v1/traces", timeout=TIMEOUT_S)
        self._provider.add_span_processor(BatchSpanProcessor(spans))
        self._tracer = self._provider.get_tracer("fednode", __version__)
        self._round: Span | None = None
        self._began = time.time_ns()
        self._well = True
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Follow the node from now on."""
        # The library logs each failure with a traceback; `push` says it once, in a sentence.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._tasks = [asyncio.create_task(self._trace()), asyncio.create_task(self._push_often())]

    async def close(self) -> None:
        """Push what is left, for no longer than it may take. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TIMEOUT_S):
                    await self.push()
                    await asyncio.to_thread(self._provider.shutdown)

    async def push(self) -> bool:
        """Push all metrics as they are now; tell whether the collector took them."""
        data = self._data()
        try:
            result = await asyncio.to_thread(self._exporter.export, data, TIMEOUT_S * 1000)
        except OSError:
            result = MetricExportResult.FAILURE
        well = result is MetricExportResult.SUCCESS
        if not well and self._well:
            text = f"the collector at {self._endpoint} (otel.endpoint) takes no metrics: is it up?"
            self._events.record(Record("otel.failed", text, "warning"))
        self._well = well
        return well

    async def _push_often(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self.push()

    # Traces ---------------------------------------------------------------------------------------

    async def _trace(self) -> None:
        async for one in self._events.follow(0, "debug"):
            self.trace(one)

    def trace(self, one: Logged) -> None:
        """Take one record into the trace of its round."""
        record, at = one.record, int(one.time * NS)
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

    # Metrics --------------------------------------------------------------------------------------

    def _data(self) -> MetricsData:
        now = time.time_ns()
        found = [self._metric(family, now) for family in self._families() if family.samples]
        scope = ScopeMetrics(InstrumentationScope("fednode", __version__), found, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _metric(self, family: Family, now: int) -> Metric:
        unit = UNITS.get(family.name.rpartition("_")[2], "")
        kind: Gauge | Sum | Histogram
        if family.type == "histogram":
            points = [self._histogram(one, now) for one in _by_labels(family)]
            kind = Histogram(points, AggregationTemporality.CUMULATIVE)
        else:
            numbers = [
                NumberDataPoint(dict(one.labels), self._began, now, one.value)
                for one in family.samples
            ]
            total = family.type == "counter"
            cumulative = AggregationTemporality.CUMULATIVE
            kind = Sum(numbers, cumulative, is_monotonic=True) if total else Gauge(numbers)
        return Metric(family.name, family.documentation, unit, kind)

    def _histogram(self, samples: list[Any], now: int) -> HistogramDataPoint:
        """Return a point from Prometheus' samples, whose buckets count what is below as well."""
        by_kind = {one.name.rpartition("_")[2]: one for one in samples if "le" not in one.labels}
        below = [one for one in samples if "le" in one.labels]
        counts = [int(one.value) for one in below]
        own = [here - before for here, before in zip(counts, [0, *counts[:-1]], strict=True)]
        bounds = [float(one.labels["le"]) for one in below if one.labels["le"] != INFINITE]
        labels = {key: value for key, value in below[0].labels.items() if key != "le"}
        total = by_kind["sum"].value
        unknown: Any = None  # Prometheus keeps neither the least nor the greatest
        return HistogramDataPoint(
            labels, self._began, now, counts[-1], total, own, bounds, unknown, unknown
        )


def _by_labels(family: Family) -> list[list[Any]]:
    """Return the samples of each series of a histogram."""
    found: dict[tuple[tuple[str, str], ...], list[Any]] = {}
    for one in family.samples:
        key = tuple(sorted((name, text) for name, text in one.labels.items() if name != "le"))
        found.setdefault(key, []).append(one)
    return list(found.values())


def _plain(record: Record) -> dict[str, str | int | float | bool]:
    """Return a record's facts as attributes, in fednode's own name space."""
    return {
        f"fednode.{key}": one if isinstance(one, str | int | float | bool) else str(one)
        for key, one in record.fields.items()
    }
