"""The metrics that Prometheus reads from a node: base units, bounded labels, no users or paths.

Counters and histograms are filled as things happen. Gauges are read at each scrape, from the
status that `fednode status` shows. Every node has its own registry, so that several nodes can run
in one process.
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable, Iterator, Mapping
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
from fednode.core.members.phases import PHASES
from fednode.core.members.table import LIVE
from fednode.core.view import Life
from fednode.wire.gen.status_pb2 import StatusReply

TYPES_MAX: Final = 24
OTHER: Final = "other"
SECONDS: Final = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
RTT: Final = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


disable_created_metrics()  # type: ignore[no-untyped-call]  # they double what a scrape carries, and nobody reads them


class Metrics:
    """The metrics of one node; see the file's header."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._read: Callable[[], StatusReply] = StatusReply
        self._types = set[str](PHASES)
        self._round_at = 0.0
        ProcessCollector(registry=registry)
        self._messages = Counter(
            "fednode_messages",
            "Messages, by direction, type and answer.",
            ("direction", "type", "result"),
            registry=registry,
        )
        self._bytes = Counter(
            "fednode_message_bytes",
            "Bytes of serialized messages that were answered.",
            ("direction", "type"),
            registry=registry,
        )
        self._rounds = Counter(
            "fednode_rounds", "Rounds adopted since the start of the process.", registry=registry
        )
        self._round_seconds = Histogram(
            "fednode_round_duration_seconds",
            "From one adopted round to the next.",
            registry=registry,
            buckets=SECONDS,
        )
        self.train_seconds = Histogram(
            "fednode_train_duration_seconds",
            "Tuning, measuring included, on this node's images.",
            registry=registry,
            buckets=SECONDS,
        )
        self.rtt_seconds = Histogram(
            "fednode_peer_rtt_seconds",
            "From sending a ping to its answer, all peers together.",
            registry=registry,
            buckets=RTT,
        )
        self._write_seconds = Histogram(
            "fednode_checkpoint_write_seconds",
            "Making a round durable.",
            registry=registry,
            buckets=SECONDS,
        )
        self._last_exchange = Gauge(
            "fednode_last_exchange_timestamp_seconds",
            "When a message of the policy was last answered with ok, either way.",
            registry=registry,
        )
        registry.register(_Now(lambda: self._read()))

    def watch(self, read: Callable[[], StatusReply]) -> None:
        """Read gauges with this function from now on."""
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


class _Now(Collector):
    """The gauges of one scrape."""

    def __init__(self, read: Callable[[], StatusReply]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield the families, the same ones each time."""
        now = self._read()
        furthest = max((peer.round for peer in now.peers if peer.state in LIVE), default=0)
        merged = 0 if now.alone_by_wish else now.rounds_merged
        nobody = 0 if now.alone_by_wish else now.rounds_run - merged
        merges = {"peers": merged, "nobody": nobody}
        states = Counts(peer.state for peer in now.peers)
        paths = Counts(peer.path.partition(" ")[0] for peer in now.peers if peer.path)
        relays = Counts(relay.state for relay in now.relays)
        info = InfoMetricFamily("fednode_build", "Version, and what this node runs.")
        labels = {"mesh": now.mesh, "node": now.name, "policy": now.policy, "model": now.model}
        info.add_metric([], {"version": __version__, **labels})
        yield info
        yield _one("fednode_round", "Rounds adopted in this node's life.", now.round)
        yield _one("fednode_staleness_rounds", "Rounds behind the live peer that is furthest.",
                   max(0, furthest - now.round))  # fmt: skip
        text = "Rounds that merged prompts of peers, or nobody's."
        yield _each("fednode_rounds_by_company", text, "merged", merges)
        yield _each("fednode_life", "1 for what the node does now.", "state",
                    {life: float(life == now.life) for life in Life})  # fmt: skip
        yield _each("fednode_peers", "Peers, by how this node sees them.", "state", states)
        yield _each("fednode_peer_paths", "Peers, by how calls reach them.", "path", paths)
        yield _each("fednode_relays", "Relays, by how this node sees them.", "state", relays)
        yield _each("fednode_accuracy_ratio", "As last measured, 0 to 1.", "split", now.measured)
        if "loss" in now.metrics:
            loss = now.metrics["loss"]
            yield _one("fednode_loss", "Training loss of the last adopted round.", loss)
        refused = CounterMetricFamily(
            "fednode_rejected_messages", "Messages that were not taken.", labels=["reason"]
        )
        for reason, count in sorted(now.refused.items()):
            refused.add_metric([reason], count)
        yield refused


def _one(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _each(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family
