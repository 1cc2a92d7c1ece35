"""What a node tells people: log lines, the latest events, and bytes counted three ways."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Self

from node.core.conduct import Tally
from node.core.events import Record

EVENTS_KEPT = 200
LOG = logging.getLogger("fednode")


@dataclass(slots=True)
class Traffic:
    """Messages and bytes in each direction: tensors alone, the frame, and (estimated) the wire."""

    messages_in: int = 0
    messages_out: int = 0
    payload_in: int = 0
    payload_out: int = 0
    serialized_in: int = 0
    serialized_out: int = 0
    wire_in: int = 0
    wire_out: int = 0

    def add(self, direction: str, payload: int, frame: int, wire: int) -> None:
        """Count one message; direction is "in" or "out"."""
        for name, amount in (
            ("messages", 1),
            ("payload", payload),
            ("serialized", frame),
            ("wire", wire),
        ):
            key = f"{name}_{direction}"
            setattr(self, key, getattr(self, key) + amount)

    def as_dict(self) -> dict[str, int]:
        """Return all counters by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(slots=True)
class Refusals(Tally):
    """What never came to the kernel."""

    show: Callable[[Record], None] = lambda record: LOG.warning("%s", record.text)

    def note(self, kind: str, who: str, text: str) -> None:
        """Count somebody or something that was not let in."""
        if self.first(kind, who):
            self.show(Record("message.refused", text, "warning"))


@dataclass(slots=True)
class Telemetry:
    """Everything countable of one node."""

    total: Traffic = field(default_factory=Traffic)
    peers: dict[str, Traffic] = field(default_factory=dict)
    events: deque[tuple[float, Record]] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))

    @classmethod
    def restored(cls, meters: Mapping[str, Mapping[str, int]]) -> Self:
        """Go on counting from what the store kept; "" stands for all peers together."""
        known = {one.name for one in fields(Traffic)}
        counted = {
            peer: Traffic(**{key: value for key, value in held.items() if key in known})
            for peer, held in meters.items()
        }
        return cls(counted.pop("", Traffic()), counted)

    def meters(self) -> dict[str, dict[str, int]]:
        """Return all counters, to be stored with a round."""
        each = {peer: traffic.as_dict() for peer, traffic in sorted(self.peers.items())}
        return {"": self.total.as_dict(), **each}

    def record(self, record: Record) -> None:
        """Log a record; keep warnings and errors for status."""
        LOG.log(getattr(logging, record.level.upper()), "%s", record.text)
        if record.level in {"warning", "error"}:
            self.events.append((time.time(), record))

    def count(self, peer: str, direction: str, payload: int, frame: int, wire: int) -> None:
        """Count one message to or from a peer."""
        self.total.add(direction, payload, frame, wire)
        self.peers.setdefault(peer, Traffic()).add(direction, payload, frame, wire)
