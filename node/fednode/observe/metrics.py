"""The metrics that Prometheus reads from a node: base units, bounded labels, no users or paths.

Counters and histograms are filled as things happen. Gauges are read at each scrape, from the
status that `fednode status` shows. Every node has its own registry, so that several nodes can run
in one process.
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from fednode import __version__
from fednode.core.members.table import LIVE
from fednode.core.types import PHASES
from fednode.core.view import Life
from fednode.wire.gen.status_pb2 import StatusReply

TYPES_MAX: Final = 24
OTHER: Final = "other"
SECONDS: Final = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
RTT: Final = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


disable_created_metrics()  # type: ignore[no-untyped-call]  # they double what a scrape carries, and nobody reads them


class Metrics(Collector):
    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._read: Callable[[], StatusReply] = StatusReply
        self._types = set[str](PHASES)
        self._round_at = 0.0

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"fednode_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str, buckets: Sequence[float] = SECONDS) -> Histogram:
            return Histogram(f"fednode_{name}_seconds", text, registry=registry, buckets=buckets)

        labels = "direction", "type", "result"
        self._messages = counter("messages", "Messages, by direction, type and answer.", *labels)
        answered = "Bytes of serialized messages that were answered."
        self._bytes = counter("message_bytes", answered, "direction", "type")
        self._rounds = counter("rounds", "Rounds adopted since the start of the process.")
        self._round_seconds = seconds("round_duration", "From one adopted round to the next.")
        tuning = "Tuning, measuring included, on this node's images."
        self.train_seconds = seconds("train_duration", tuning)
        pinging = "From sending a ping to its answer, all peers together."
        self.rtt_seconds = seconds("peer_rtt", pinging, RTT)
        self._write_seconds = seconds("checkpoint_write", "Making a round durable.")
        self._last_exchange = Gauge(
            "fednode_last_exchange_timestamp_seconds",
            "When a message of the policy was last answered with ok, either way.",
            registry=registry,
        )
        ProcessCollector(registry=registry)
        registry.register(self)

    def watch(self, read: Callable[[], StatusReply]) -> None:
        self._read = read

    def text(self) -> tuple[bytes, str]:
        """Return the metrics in the exposition format, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def message(self, direction: str, phase: str, result: str, size: int) -> None:
        """Count a message; phases beyond the first TYPES_MAX share the label "other"."""
        if phase not in self._types and len(self._types) < TYPES_MAX and result == "ok":
            self._types.add(phase)
        kind = phase if phase in self._types else OTHER
        self._messages.labels(direction, kind, result).inc()
        if result != "unreachable":
            self._bytes.labels(direction, kind).inc(size)
        if result == "ok":
            self._last_exchange.set_to_current_time()

    def committed(self, seconds: float) -> None:
        """Count an adopted round, which took `seconds` to write."""
        now = time.monotonic()
        if self._round_at:
            self._round_seconds.observe(now - self._round_at)
        self._round_at = now
        self._rounds.inc()
        self._write_seconds.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield what the status says now, in the same families each time."""
        now = self._read()
        furthest = max((peer.round for peer in now.peers if peer.state in LIVE), default=0)
        merged, ran = (0, 0) if now.alone_by_wish else (now.rounds_merged, now.rounds_run)
        info = {"mesh": now.mesh, "node": now.name, "policy": now.policy, "model": now.model}
        yield InfoMetricFamily(
            "fednode_build",
            "Version, and what this node runs.",
            {"version": __version__, **info},
        )
        yield _one("round", "Rounds adopted in this node's life.", now.round)
        behind = "Rounds behind the live peer that is furthest."
        yield _one("staleness_rounds", behind, max(0, furthest - now.round))
        text = "Rounds that merged what peers sent, or nothing."
        yield _each("rounds_by_company", text, "merged", {"peers": merged, "nobody": ran - merged})
        lives = {str(life): float(life == now.life) for life in Life}
        yield _each("life", "1 for what the node does now.", "state", lives)
        states = Counts(peer.state for peer in now.peers)
        yield _each("peers", "Peers, by how this node sees them.", "state", states)
        paths = Counts(peer.path.partition(" ")[0] for peer in now.peers if peer.path)
        yield _each("peer_paths", "Peers, by how calls reach them.", "path", paths)
        relays = Counts(relay.state for relay in now.relays)
        yield _each("relays", "Relays, by how this node sees them.", "state", relays)
        yield _each("accuracy_ratio", "As last measured, 0 to 1.", "split", now.measured)
        if "loss" in now.metrics:
            yield _one("loss", "Training loss of the last adopted round.", now.metrics["loss"])
        refused = "Messages that were not taken."
        yield _each("rejected_messages", refused, "reason", now.refused, CounterMetricFamily)


def _one(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"fednode_{name}", text, value=value)


def _each(
    name: str,
    text: str,
    label: str,
    values: Mapping[str, float],
    family: type[GaugeMetricFamily | CounterMetricFamily] = GaugeMetricFamily,
) -> Metric:
    made = family(f"fednode_{name}", text, labels=[label])
    for key, value in sorted(values.items()):
        made.add_metric([key], value)
    return made
