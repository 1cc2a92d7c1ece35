"""Health and metrics of a relay over HTTP. They name no key and no node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from fednode.errors import AddressError
from fednode.transports.address import parse
from fednode.transports.relay import Relay

HEALTH: Final = "/healthz"


class Figures(Collector):
    """The metrics of a relay. They name no key and no node."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def collect(self) -> Iterator[Metric]:
        """Yield the families, the same ones each time."""
        relay = self._relay
        yield GaugeMetricFamily(
            "fednode_relay_waiting", "Nodes that wait to be called.", value=relay.waiting
        )
        yield GaugeMetricFamily(
            "fednode_relay_streams", "Streams that are open now.", value=relay.streams
        )
        yield CounterMetricFamily(
            "fednode_relay_streams_opened", "Streams since the start.", value=relay.counts.streams
        )
        yield CounterMetricFamily(
            "fednode_relay_bytes", "Bytes carried, both ways.", value=relay.counts.bytes
        )
        refused = CounterMetricFamily(
            "fednode_relay_refusals", "Requests that were not granted.", labels=["reason"]
        )
        for reason, count in sorted(relay.counts.refused.items()):
            refused.add_metric([reason], count)
        yield refused


class Pages:
    """Health and metrics of a relay over HTTP."""

    def __init__(self, relay: Relay) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(Figures(relay))
        self._runner: web.AppRunner | None = None
        self.draining = False

    async def listen(self, address: str) -> str:
        """Serve at an address; return the address bound. Raise AddressError."""
        endpoint = parse(address)
        app = web.Application(client_max_size=1 << 10)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get(HEALTH, self._health)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        site = web.TCPSite(self._runner, endpoint.numeric, endpoint.port)
        try:
            await site.start()
        except OSError as fault:
            await self.close()
            raise AddressError(
                f"--metrics is {address}, which cannot be listened on: {fault.strerror}; choose "
                "another"
            ) from fault
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop serving. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        text = generate_latest(self._registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _health(self, request: web.Request) -> web.Response:
        text = "draining" if self.draining else "serving"
        return web.Response(text=f"{text}\n", status=503 if self.draining else 200)
