"""What a collector gets: the figures of the Prometheus endpoint, and a trace of each round."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from prometheus_client.parser import text_string_to_metric_families

from node.core.events import Record
from node.runtime import otel
from node.runtime.events import Events, Logged
from node.runtime.metrics import Metrics, Reading
from node.runtime.otel import Otel

GUARD_S = 20.0
LABELS = {"mesh": "m", "node": "a"}


class Collector:
    """An OTLP receiver over HTTP that keeps what it gets."""

    def __init__(self) -> None:
        self.metrics: list[Any] = []
        self.spans: list[Any] = []
        self.resource: dict[str, str] = {}

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip" and body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        if request.path.endswith("metrics"):
            found = metrics_service_pb2.ExportMetricsServiceRequest.FromString(body)
            (resource,) = found.resource_metrics
            self.metrics += resource.scope_metrics[0].metrics
            said = resource.resource.attributes
            self.resource = {one.key: one.value.string_value for one in said}
        else:
            told = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
            self.spans += told.resource_spans[0].scope_spans[0].spans
        return web.Response()


@pytest.fixture
async def collector() -> AsyncIterator[tuple[Collector, str]]:
    one, app = Collector(), web.Application()
    app.router.add_post("/v1/{kind}", one.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield one, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def filled() -> Metrics:
    metrics = Metrics()
    now = Reading(LABELS, "running", 7, 1, 0.5, {"own": 0.75}, {"alive": 2}, {"replay": 3})
    metrics.watch(lambda: now)
    metrics.message("out", "offer", "ok", 100)
    metrics.message("in", "offer", "ok", 40)
    metrics.message("in", "ack", "invalid", 7)
    for seconds in (0.03, 0.3, 4000.0):
        metrics.train_seconds.observe(seconds)
    return metrics


async def test_what_is_pushed_is_what_prometheus_reads(collector: tuple[Collector, str]) -> None:
    got, endpoint = collector
    metrics = filled()
    one = Otel(endpoint, LABELS, Events(), metrics.families, 60.0)
    assert await one.push()
    assert (got.resource["service.namespace"], got.resource["service.instance.id"]) == ("m", "a")
    pushed: dict[tuple[str, frozenset[tuple[str, str]]], Any] = {}
    for metric in got.metrics:
        kind = metric.WhichOneof("data")
        for point in getattr(metric, kind).data_points:
            labels = frozenset((one.key, one.value.string_value) for one in point.attributes)
            pushed[metric.name, labels] = point
    families = {one.name: one for one in text_string_to_metric_families(metrics.text()[0].decode())}
    compared = 0
    for name, family in families.items():
        if name.startswith("process_") or family.type == "histogram":
            continue
        for sample in family.samples:
            point = pushed[name.removesuffix("_info"), frozenset(sample.labels.items())]
            assert (point.as_double or point.as_int) == sample.value, name
            compared += 1
    assert compared > 15
    tuned = pushed["fednode_train_duration_seconds", frozenset()]
    assert (tuned.count, tuned.sum) == (3, 4000.33)
    assert sum(tuned.bucket_counts) == 3
    assert len(tuned.bucket_counts) == len(tuned.explicit_bounds) + 1
    assert tuned.bucket_counts[-1] == 1  # 4000 s lies beyond the last bound
    assert not tuned.HasField("min")


async def test_a_round_is_a_span_with_its_tunings_and_messages(
    collector: tuple[Collector, str],
) -> None:
    got, endpoint = collector
    one = Otel(endpoint, LABELS, Events(), Metrics().families, 60.0)
    one.begin()
    told = [
        Record("message.sent", "before any round", "debug"),
        Record("round.began", "", "debug", {"round": 4}),
        Record("tune.done", "", "debug", {"round": 4, "seconds": 2.0, "loss": 0.5}),
        Record("message.sent", "offer", "debug", {"peer": "b", "bytes": 9}),
        Record("peer.dead", "b is dead", "warning", {"peer": "b"}),
        Record("peer.alive", "no part of a trace", "info", {"peer": "c"}),
        Record("round.adopted", "", "info", {"round": 4, "loss": 0.25}),
    ]
    for at, record in enumerate(told):
        one.trace(Logged(at, 1000.0 + at, record))
    async with asyncio.timeout(GUARD_S):
        await one.close()
        await one.close()
    spans = {span.name: span for span in got.spans}
    assert sorted(spans) == ["round", "tune"]
    whole, tune = spans["round"], spans["tune"]
    assert (whole.start_time_unix_nano, whole.end_time_unix_nano) == (1001 * 10**9, 1006 * 10**9)
    assert (tune.start_time_unix_nano, tune.end_time_unix_nano) == (1000 * 10**9, 1002 * 10**9)
    assert (tune.parent_span_id, tune.trace_id) == (whole.span_id, whole.trace_id)
    assert [event.name for event in whole.events] == ["message.sent", "peer.dead"]
    figures = {one.key: one.value for one in whole.attributes}
    assert figures["fednode.round"].int_value == 4
    assert figures["fednode.loss"].double_value == 0.25


async def test_a_collector_that_is_away_costs_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "TIMEOUT_S", 0.3)
    events = Events()
    one = Otel("http://127.0.0.1:9", LABELS, events, filled().families, 60.0)
    one.begin()
    async with asyncio.timeout(GUARD_S):
        assert not await one.push()
        assert not await one.push()
        await one.close()
    (trouble,) = events.troubles
    assert trouble.record.kind == "otel.failed"
    assert "http://127.0.0.1:9 (otel.endpoint) takes no metrics" in trouble.record.text
