"""What a collector gets: a trace of each round."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from fednode.core.events import Record
from fednode.observe import otel
from fednode.observe.events import Events, Logged
from fednode.observe.otel import Otel

GUARD_S = 20.0
LABELS = {"mesh": "m", "node": "a"}


class Collector:
    """An OTLP receiver over HTTP that keeps what it gets."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resource: dict[str, str] = {}

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip" and body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        told = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
        (resource,) = told.resource_spans
        self.spans += resource.scope_spans[0].spans
        said = resource.resource.attributes
        self.resource = {one.key: one.value.string_value for one in said}
        return web.Response()


@pytest.fixture
async def collector() -> AsyncIterator[tuple[Collector, str]]:
    one, app = Collector(), web.Application()
    app.router.add_post("/v1/traces", one.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield one, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_round_is_a_span_with_its_tunings_and_messages(
    collector: tuple[Collector, str],
) -> None:
    got, endpoint = collector
    one = Otel(endpoint, LABELS, Events())
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
    assert (got.resource["service.namespace"], got.resource["service.instance.id"]) == ("m", "a")
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
    monkeypatch.setattr(otel, "TIMEOUT_S", 1.0)
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
    events = Events()
    one = Otel("http://127.0.0.1:9", LABELS, events)
    one.begin()
    async with asyncio.timeout(GUARD_S):
        for number in range(2):
            one.trace(Logged(2 * number, 1000.0, Record("round.began", "")))
            one.trace(Logged(2 * number + 1, 1001.0, Record("round.adopted", "")))
        await one.close()  # pushes what is left, each round for itself
    (trouble,) = events.troubles
    assert trouble.record.kind == "otel.failed"
    assert "http://127.0.0.1:9 (otel.endpoint) takes no traces" in trouble.record.text
