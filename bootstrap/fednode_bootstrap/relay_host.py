"""Run a relay as a program of its own: its certificate, whom it admits, its log and metrics.

Its folder is a state directory, as `fednode invite --out` writes it (identity, peers.yaml).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fednode.enrolment.client import renew
from fednode.errors import AddressError, ConfigError, FednodeError
from fednode.identity import keys
from fednode.identity.identity import IDENTITY, REVOKED_FILE, NodeIdentity, keep_identity_private
from fednode.identity.roster import Roster, day
from fednode.observe.telemetry import Refusals
from fednode.settings.peers import Peers, load_peers
from fednode.transports.address import RelayEntry, parse
from fednode.transports.grpc import GrpcTransport
from fednode.transports.relay_service import RelayService

RENEWAL_S: Final = 6 * 3600.0
CONNECTIONS_MAX: Final = 1024
LOG: Final = logging.getLogger("fednode")
Say = Callable[[str], None]


class Figures(Collector):
    """The metrics of a relay. They name no key and no node."""

    def __init__(self, relay: RelayService) -> None:
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
        for reason, count in sorted(dict(relay.counts.refused).items()):
            refused.add_metric([reason], count)
        yield refused


def read_mesh(file: Path) -> Peers:
    """Return a peers.yaml; raise ConfigError if its mesh has no key."""
    peers = load_peers(file)
    if peers.mesh_key is None:
        raise ConfigError(
            f"{file} gives no mesh_key, and a relay knows nodes by their certificates: give the "
            "file that `fednode invite --out` wrote."
        )
    return peers


def raise_descriptors() -> None:
    """Let this process open as many connections as the system allows it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def serve(
    state: Path, file: Path, listen: str, stop: asyncio.Event, say: Say, metrics: str | None = None
) -> None:
    """Run a relay until stopped, then let streams end for some time.

    file: peers.yaml. say: shows a line of the log. metrics: where /metrics and /healthz are. Raise
    AddressError if an address cannot be listened on, ConfigError if peers.yaml is wrong, StateError
    without a certificate.
    """
    raise_descriptors()
    keep_identity_private(state)
    peers, identity = read_mesh(file), NodeIdentity(state)
    roster = Roster(peers.mesh, keys.read_public(str(peers.mesh_key)))
    roster.keep_in(state / IDENTITY / REVOKED_FILE)
    relay, refusals = RelayService(roster), Refusals()
    refusals.show = lambda record: say(f"refused: {record.text}")
    server = GrpcTransport(
        identity.own, roster, note=refusals.note, connections_max=CONNECTIONS_MAX
    )
    server.add_service(relay.register)
    page = renewing = None
    try:
        at = await server.listen(listen, None)
        say(f"relay {identity.name} of {peers.mesh} at {at}, id {identity.id}")
        if metrics is not None:
            page = serve_metrics(relay, metrics)
            say(f"health and metrics: http://{metrics}/metrics")
        own = RelayEntry(identity.name, at)
        renewing = asyncio.ensure_future(keep_certificate(identity, roster, peers, own, say))
        await stop.wait()
        say(f"stopping: {relay.streams} streams may end; no new ones are taken")
        close_metrics(page)
        page = None
        await relay.drain()
        counts = relay.counts
        say(f"stopped after {counts.streams:,} streams and {counts.bytes:,} bytes")
    finally:
        if renewing is not None:
            renewing.cancel()
        close_metrics(page)
        await server.close()


def serve_metrics(relay: RelayService, address: str) -> Any:
    """Serve the metrics of a relay over HTTP, at any path, as long as it takes new streams."""
    registry, endpoint = CollectorRegistry(), parse(address)
    ProcessCollector(registry=registry)
    registry.register(Figures(relay))
    try:
        page, _ = start_http_server(endpoint.port, endpoint.numeric, registry)
    except OSError as fault:
        raise AddressError(
            f"--metrics is {address}, which cannot be listened on: {fault.strerror}; choose another"
        ) from fault
    return page


def close_metrics(page: Any) -> None:
    """Stop serving metrics."""
    if page is not None:
        page.shutdown()
        page.server_close()


async def keep_certificate(
    identity: NodeIdentity, roster: Roster, peers: Peers, own: RelayEntry, say: Say
) -> None:
    """Renew the relay's certificate before it ends, for as long as the relay runs.

    own: the relay itself, through which it reaches nodes that wait there.
    """
    places = [(peer.name, peer.address) for peer in peers.peers]
    while True:
        await asyncio.sleep(RENEWAL_S)
        if not identity.needs_renewal(roster):
            continue
        transport = GrpcTransport(identity.own, roster, [own])
        try:
            await renew(transport, places, identity, roster)
            say(f"the certificate was renewed; it ends on {day(identity.end)}")
        except FednodeError as fault:
            say(f"the certificate ends on {day(identity.end)} and was not renewed: {fault}")
        finally:
            await transport.close()
