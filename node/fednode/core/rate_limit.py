"""Rate limits: what a peer may send to a node, cost it in time, and have it write into the log.

Each is a token bucket, so bursts pass and floods do not. Callers give the time, from a monotonic
clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from fednode.core.events import Level, Record
from fednode.core.settings import LimitSettings

BUCKETS_MAX: Final = 4096
BURST_S: Final = 10.0  # a caller may send at once what its quota allows in so many seconds
BUSY_SHARE: Final = 0.25
"""Share of the daemon's time that the messages of one peer may take on average."""
RECORDS: Final = 8
EVERY_S: Final = 60.0
"""A node writes RECORDS changes of a member and level at once, and then one in EVERY_S seconds."""
SAID: Final = {"dead": "is offline", "left": "left the mesh"}
"""What is said of a member in a state, if it is not "is" and the state's name."""
WARN: Final = frozenset({"dead", "refused", "revoked", "quarantined"})


@dataclass(slots=True)
class TokenBucket:
    """How much is left at a time, and how often there was too little since the last time."""

    left: float
    at: float
    refused: int = 0

    def take(self, amount: float = 1.0) -> bool:
        if self.left < amount:
            self.refused += 1
            return False
        self.left -= amount
        return True


class TokenBuckets:
    """A bucket for each key; beyond BUCKETS_MAX the key seen longest ago starts anew.

    size: what a full bucket holds. rate: what flows in, a second.
    """

    def __init__(self, size: float, rate: float) -> None:
        self.size, self.rate = size, rate
        self._buckets: OrderedDict[Hashable, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def of(self, key: Hashable, now: float) -> TokenBucket:
        """Return the bucket of a key as it is now."""
        bucket = self._buckets.setdefault(key, TokenBucket(self.size, now))
        self._buckets.move_to_end(key)
        if len(self._buckets) > BUCKETS_MAX:
            self._buckets.popitem(last=False)
        bucket.left = min(self.size, bucket.left + max(0.0, now - bucket.at) * self.rate)
        bucket.at = now
        return bucket


class Quota:
    """What each caller may send, and how much of the daemon's time its messages may take."""

    def __init__(self, settings: LimitSettings, busy_share: float = BUSY_SHARE) -> None:
        self._messages, self._megabytes, self._seconds = (
            TokenBuckets(rate * BURST_S, rate)
            for rate in (settings.messages_s, settings.megabytes_s, busy_share)
        )

    def refuse(self, caller: str, size: int, now: float) -> str:
        """Count a frame of `size` bytes; return which limit it exceeds, "" if it may come in."""
        needs = (
            (self._messages, 1.0, "messages a second (messages)"),
            (self._megabytes, size / 1e6, "MB a second (megabytes)"),
            (self._seconds, 0.0, "seconds of this node's time a second (seconds)"),
        )
        for buckets, amount, what in needs:
            if buckets.of(caller, now).left < amount:
                return f"more than {buckets.rate:g} {what}; slow down"
        for buckets, amount, _ in needs:
            buckets.of(caller, now).take(amount)
        return ""

    def spend(self, caller: str, seconds: float, now: float) -> None:
        """Note how long a caller's message kept the event loop busy."""
        self._seconds.of(caller, now).left -= seconds


class Changes:
    """Records of the changes of members' states, few enough that no member fills a log.

    A member that leaves and joins without end would write a record for each of its messages. What
    was left out is counted in the next record. Warnings count apart, so that the last "is offline"
    is written however often the member came and went before.
    """

    def __init__(self) -> None:
        self._buckets = TokenBuckets(RECORDS, 1 / EVERY_S)

    def record(
        self, now: float, peer: str, state: str, reason: str, before: str = ""
    ) -> list[Record]:
        """Return the record of a member's new state; nothing if it had too many lately.

        before: its last state. One that never answered may not run yet, which is no death; one that
        was revoked before this node met it is named at each start.
        """
        yet = (before, state) == ("unknown", "dead")
        first = yet or (before, state) == ("unknown", "revoked")
        level: Level = "warning" if state in WARN and not first else "info"
        bucket = self._buckets.of((peer, level), now)
        if not bucket.take():
            return []
        what = "does not answer yet" if yet else SAID.get(state, f"is {state}")
        text = f"{peer} {what}" + (f": {reason}" if reason else "")
        if bucket.refused:
            text += f" ({bucket.refused} such changes of {peer} before this one were left out)"
            bucket.refused = 0
        return [Record(f"peer.{state}", text, level, {"peer": peer})]
