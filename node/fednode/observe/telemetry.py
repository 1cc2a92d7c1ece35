"""What a node counts: bytes three ways, messages, seconds; and what it tells of each."""

from __future__ import annotations

import logging
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal

from fednode.core.agreement import AGREES, DIFFERS
from fednode.core.events import Record
from fednode.core.reputation import Tally
from fednode.core.types import SPLITS, ZERO_SHOT, Job, Json, Message, Report, Snapshot
from fednode.observe.events import Events
from fednode.observe.metrics import Metrics
from fednode.transports.framing import Traffic

LOG = logging.getLogger("fednode")
Direction = Literal["in", "out"]
TESTS: Final = SPLITS[:3]
MEASURED: Final = (*SPLITS, *(ZERO_SHOT + split for split in TESTS))
ORDINARY: Final = frozenset(
    {"round.deadline", "round.drift", "round.aborted", "round.doubted", "round.skipped"}
    | {"round.withheld", "round.taken", "round.mended"}
)
"""Kinds of records that the ordinary arrival of a member brings."""
BRIEF: Final = 3
LATELY: Final = 16
PACE_OF: Final = 20
"""The pace is the median over this many rounds, the latest ones."""


@dataclass(slots=True)
class Exchanged:
    """What a node exchanged with a peer, or with all peers."""

    received: Traffic = field(default_factory=Traffic)
    sent: Traffic = field(default_factory=Traffic)

    def as_dict(self) -> dict[str, int]:
        """Return all counters by the names that the status service uses: messages_in and so on."""
        ways = ("in", self.received), ("out", self.sent)
        return {f"{name}_{way}": count for way, of in ways for name, count in asdict(of).items()}


@dataclass(slots=True)
class Refusals(Tally):
    """What never came to the kernel."""

    show: Callable[[Record], None] = lambda record: LOG.warning("%s", record.text)

    def note(self, kind: str, who: str, text: str) -> None:
        """Count somebody or something that was not let in."""
        if self.first(kind, who):
            self.show(Record("message.refused", text, "warning"))


class Telemetry:
    """Everything countable of one node. All counters begin at 0 at each start."""

    def __init__(
        self,
        events: Events | None = None,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.peers = dict[str, Exchanged]()
        self.events, self.metrics = events or Events(), metrics or Metrics()
        self.measured: dict[str, float] = {}
        self.measured_at = 0
        self._round, self._troubled = 0, dict[str, list[int]]()
        self._differs: tuple[int, Record] | None = None
        self._clock = clock
        self._ends: deque[float] = deque(maxlen=PACE_OF + 1)

    @property
    def total(self) -> Exchanged:
        total = Exchanged()
        for exchanged in self.peers.values():
            total.received.add(exchanged.received)
            total.sent.add(exchanged.sent)
        return total

    def record(self, record: Record) -> None:
        """Log a record, keep it, and tell who follows; what a join brings is no warning at first.

        A node that joins or returns is late in its first rounds, and the others are for a moment
        without it. Only what happens in more than BRIEF of the last LATELY rounds is a warning, and
        another state that lasts for more than BRIEF rounds.
        """
        if record.kind in {DIFFERS, AGREES}:
            self._differs = (self._round, record) if record.kind == DIFFERS else None
            record = replace(record, level="info")
        if record.kind in ORDINARY and record.level == "warning":
            rounds = self._troubled.setdefault(record.kind, [])
            rounds[:] = [at for at in rounds if self._round - LATELY < at < self._round]
            rounds.append(self._round)
            if len(rounds) <= BRIEF:
                record = replace(record, level="info")
        self.events.record(record)

    def count(self, peer: str, direction: Direction, payload: int, frame: int) -> None:
        """Count one message to or from a peer; payload, frame: its sizes in bytes."""
        exchanged = self.peers.setdefault(peer, Exchanged())
        way = exchanged.received if direction == "in" else exchanged.sent
        way.count(payload, frame)

    def message(self, direction: str, peer: str, message: Message, size: int, result: str) -> None:
        """Tell of a message to ("out") or from ("in") a peer, of `size` bytes, and its answer."""
        self.metrics.message(direction, message.phase, result, size)
        facts: dict[str, Json] = {
            "peer": peer,
            "message": f"{message.sender}/{message.round}/{message.phase}",
            "round": message.round,
            "phase": message.phase,
            "bytes": size,
            "result": result,
        }
        way, joint = ("sent", "to") if direction == "out" else ("received", "from")
        text = f"{message.phase} of round {message.round} {joint} {peer}: {result}"
        self.record(Record(f"message.{way}", text, "debug", facts))

    def tuned(self, job: Job, report: Report) -> None:
        self.metrics.train_seconds.observe(report.seconds)
        facts: dict[str, Json] = {"round": job.round, "stage": job.stage, "steps": report.steps}
        facts |= {"seconds": report.seconds, **report.metrics}
        text = f"round {job.round}: tuned in {report.seconds:.2f} s"
        self.record(Record("tune.done", text, "debug", facts))

    def measure(self, metrics: Mapping[str, float], number: int) -> None:
        """Keep the accuracies among the figures of a round, until they are measured again."""
        self.measured |= {key: metrics[key] for key in MEASURED if key in metrics}
        if any(key in metrics for key in TESTS):
            self.measured_at = number

    @property
    def round_s(self) -> float:
        """Seconds from one round's end to the next, the median lately; 0 before two rounds."""
        if len(self._ends) < 2:
            return 0.0
        return statistics.median(later - sooner for sooner, later in pairwise(self._ends))

    def committed(self, snapshot: Snapshot, givers: tuple[str, ...], seconds: float) -> None:
        """Tell of a round that is on disk, and whose contributions it holds.

        Where the rounds begin again, at round 0, the figures of the run before are dropped, but for
        those of the hand-written prompt.
        """
        self._round = number = snapshot.policy.round
        if self._differs is not None and number > self._differs[0] + BRIEF:
            self.events.record(self._differs[1])
            self._differs = None
        if number == 0:
            zero_shot = {key for key in self.measured if key.startswith(ZERO_SHOT)}
            self.measured = {key: self.measured[key] for key in zero_shot}
            self.measured_at = 0
            self._ends.clear()
            return
        self.metrics.committed(seconds)
        self._ends.append(self._clock())
        self.measure(snapshot.metrics, number)
        if givers:
            names: list[Json] = list(givers)
            text = f"round {number}: merged what came from {', '.join(givers)}"
            self.record(Record("round.merged", text, "debug", {"round": number, "givers": names}))
