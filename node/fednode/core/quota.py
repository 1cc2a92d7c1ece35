"""Quotas of each peer: messages, bytes and the daemon's own time, each a leaky bucket.

A bucket holds what is allowed in BURST_S seconds and empties steadily. So bursts pass and floods do
not. Callers give the time, from a monotonic clock.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from fednode.core.settings import LimitSettings

BURST_S: Final = 10.0
PEERS_MAX: Final = 2048
BUSY_SHARE: Final = 0.25
"""Share of the daemon's time that the messages of one peer may take on average."""


@dataclass(slots=True)
class Spent:
    """The contents of a caller's buckets at a time."""

    at: float
    messages: float = 0.0
    megabytes: float = 0.0
    seconds: float = 0.0


class Quota:
    """The buckets of all callers; beyond PEERS_MAX the caller seen longest ago starts anew."""

    def __init__(self, settings: LimitSettings, busy_share: float = BUSY_SHARE) -> None:
        self._settings = settings
        self._busy_share = busy_share
        self._callers: OrderedDict[str, Spent] = OrderedDict()

    def refuse(self, caller: str, size: int, now: float) -> str:
        """Count a frame of `size` bytes; return which limit it exceeds, "" if it may come in."""
        held, limits = self._leaked(caller, now), self._settings
        for what, amount, rate, unit in (
            ("messages", held.messages + 1, limits.messages_s, "messages"),
            ("megabytes", held.megabytes + size / 1e6, limits.megabytes_s, "MB"),
            ("seconds", held.seconds, self._busy_share, "seconds of this node's time"),
        ):
            if amount > rate * BURST_S:
                return f"more than {rate:g} {unit} a second ({what}); slow down"
        held.messages += 1
        held.megabytes += size / 1e6
        return ""

    def spend(self, caller: str, seconds: float, now: float) -> None:
        """Note how long a caller's message kept the event loop busy."""
        self._leaked(caller, now).seconds += seconds

    def _leaked(self, caller: str, now: float) -> Spent:
        held = self._callers.setdefault(caller, Spent(now))
        self._callers.move_to_end(caller)
        if len(self._callers) > PEERS_MAX:
            self._callers.popitem(last=False)
        age, limits = max(0.0, now - held.at), self._settings
        held.at = now
        held.messages = max(0.0, held.messages - age * limits.messages_s)
        held.megabytes = max(0.0, held.megabytes - age * limits.megabytes_s)
        held.seconds = max(0.0, held.seconds - age * self._busy_share)
        return held
