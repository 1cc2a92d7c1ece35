"""`fednode relay`: connect nodes that take no connections.

Its folder is a state directory, as `fednode invite --out` writes it (identity, peers.yaml).
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click
import uvloop
from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fednode.core import foreign
from fednode.enrolment.client import renew
from fednode.errors import AddressError, ConfigError, FednodeError
from fednode.identity import keys
from fednode.identity.identity import IDENTITY, REVOKED_FILE, NodeIdentity, keep_identity_private
from fednode.identity.roster import Roster, day
from fednode.observe.telemetry import Refusals
from fednode.settings.peers import Peers, load_peers
from fednode.terminal.options import PATH
from fednode.terminal.stop import call_at_end
from fednode.transports.address import RelayEntry, parse
from fednode.transports.grpc import GrpcTransport
from fednode.transports.relay_service import RelayService

RENEWAL_S: Final = 6 * 3600.0
CONNECTIONS_MAX: Final = 1024
Say = Callable[[str], None]


@click.command()
@click.option(
    "--state", type=PATH, required=True, help="The relay's folder, of `fednode invite --out`."
)
@click.option("--peers", type=PATH, help="peers.yaml of the mesh [the one in the folder].")
@click.option("--listen", default="0.0.0.0:443", show_default=True, help="Where nodes connect.")
@click.option("--metrics", help="host:port for /metrics and /healthz [none].")
def relay(state: Path, peers: Path | None, listen: str, metrics: str | None) -> None:
    """Connect nodes that take no connections; a relay cannot read what it carries.

    It serves one mesh until SIGTERM, SIGHUP or Ctrl-C; then streams end for half a minute.
    """

    def say(text: str) -> None:
        click.echo(foreign.line(f"{time.strftime('%H:%M:%S')} {text}"))

    async def main() -> None:
        stop = asyncio.Event()
        call_at_end(lambda _: stop.set())
        await serve(state, peers or state / "peers.yaml", listen, stop, say, metrics)

    uvloop.run(main())


async def serve(
    state: Path, file: Path, listen: str, stop: asyncio.Event, say: Say, metrics: str | None = None
) -> None:
    """Run a relay until stopped, then let streams end for some time.

    file: peers.yaml. say: shows a line of the log. metrics: where /metrics and /healthz are. Raise
    AddressError if an address cannot be listened on, ConfigError if peers.yaml is wrong, StateError
    without a certificate.
    """
    _raise_descriptors()
    keep_identity_private(state)
    peers, identity = load_peers(file), NodeIdentity(state)
    if peers.mesh_key is None:
        raise ConfigError(
            f"{file} gives no mesh_key, and a relay knows nodes by their certificates: give the "
            "file that `fednode invite --out` wrote."
        )
    roster = Roster(peers.mesh, keys.read_public(peers.mesh_key))
    roster.keep_in(state / IDENTITY / REVOKED_FILE)
    service, refusals = RelayService(roster), Refusals()
    refusals.show = lambda record: say(f"refused: {record.text}")
    server = GrpcTransport(
        identity.own, roster, note=refusals.note, connections_max=CONNECTIONS_MAX
    )
    server.add_service(service.register)
    renewal: asyncio.Task[None] | None = None
    try:
        at = await server.listen(listen, None)
        say(f"relay {identity.name} of {peers.mesh} at {at}, id {identity.id}")
        own = RelayEntry(identity.name, at)
        renewal = asyncio.create_task(keep_certificate(identity, roster, peers, own, say))
        with contextlib.ExitStack() as metrics_page:
            if metrics is not None:
                metrics_page.enter_context(metrics_served(service, metrics))
                say(f"health and metrics: http://{metrics}/metrics")
            await stop.wait()
            say(f"stopping: {service.streams} streams may end; no new ones are taken")
        await service.drain()
        counts = service.counts
        say(f"stopped after {counts.streams:,} streams and {counts.bytes:,} bytes")
    finally:
        if renewal is not None:
            renewal.cancel()
        await server.close()


def _raise_descriptors() -> None:
    """Let this process open as many connections as the system allows it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Figures(Collector):
    """The metrics of a relay. They name no key and no node."""

    def __init__(self, service: RelayService) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        service, counts = self._service, self._service.counts
        for family, name, text, number in (
            (GaugeMetricFamily, "waiting", "Nodes that wait to be called.", service.waiting),
            (GaugeMetricFamily, "streams", "Streams that are open now.", service.streams),
            (CounterMetricFamily, "streams_opened", "Streams since the start.", counts.streams),
            (CounterMetricFamily, "bytes", "Bytes carried, both ways.", counts.bytes),
        ):
            yield family(f"fednode_relay_{name}", text, number)
        refused = CounterMetricFamily(
            "fednode_relay_refusals", "Requests that were not granted.", labels=["reason"]
        )
        for reason, count in sorted(dict(counts.refused).items()):
            refused.add_metric([reason], count)
        yield refused


@contextlib.contextmanager
def metrics_served(service: RelayService, address: str) -> Iterator[None]:
    """Serve the metrics of a relay over HTTP, at any path, as long as it takes new streams."""
    registry, endpoint = CollectorRegistry(), parse(address)
    ProcessCollector(registry=registry)
    registry.register(Figures(service))
    try:
        page, _ = start_http_server(endpoint.port, endpoint.numeric, registry)
    except OSError as fault:
        raise AddressError(
            f"--metrics is {address}, which cannot be listened on: {fault.strerror}; choose another"
        ) from fault
    try:
        yield
    finally:
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
