"""What a key may say to this node over all its connections, counted ahead of gRPC.

A caller that no key names yet (a visitor of the introducer) is counted by its source. Each account
has leaky buckets, as the quotas of messages have (node/fednode/core/quota.py): a bucket holds what
is allowed in BURST_S seconds and empties steadily. While a bucket is over its bound, the gate reads
nothing from that key, so TCP slows the sender. A key that stays over a bound for OVER_S is a flood:
its connections are closed, and new ones are refused for REST_S. Bytes alone never make a flood,
because large prompts over a fast line are none.

gRPC's own means were weighed first. Its limit on streams of a connection and on the size of a
message are used. Its limit on pings ends a connection and not a key. It has no option against
SETTINGS, resets, unknown frames, empty or unfinished calls, and its resource quota cannot be set
from Python. None of them counts over all connections of a key.

Everything here is pure: callers give the time, from a monotonic clock.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

BURST_S: Final = 10.0
CALLS_BURST_S: Final = 3.0
"""The same for calls: each may cost a millisecond of the event loop."""
OVER_S: Final = 10.0
"""How long a key may stay over a bound, while nothing is read from it."""
REST_S: Final = 60.0
"""How long a key that floods gets no new connection."""
PAUSE_MIN_S: Final = 0.02
"""The shortest pause: so many short reads become one."""
ACCOUNTS_MAX: Final = 4096
FORGOTTEN_AT_ONCE: Final = 8
UNFINISHED_BYTES_MAX: Final = 16 << 20
"""Bytes of calls that have no answer yet, of one key; of a frame in pieces, CALL_BYTES count."""
CALL_BYTES: Final = (1 << 20) + 4096
"""The most bytes of one call that gRPC holds: one message, or one piece."""
UNFINISHED_CALLS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Rates:
    """What an account may use a second on average, and how many new connections at once.

    calls: calls begun. frames: small HTTP/2 frames, and header bytes in portions. records: small
    TLS records, and short reads. size: bytes on the wire. doors: connections.
    """

    calls: float = 120.0
    frames: float = 1000.0
    records: float = 1000.0
    size: float = 72e6
    doors: float = 2.0
    doors_at_once: float = 20.0

    @classmethod
    def around(cls, messages_s: float, megabytes_s: float) -> Rates:
        """Return rates somewhat above the quota of messages, which answers in a sentence."""
        usual = cls()
        return cls(
            calls=max(usual.calls, 1.2 * messages_s),
            frames=max(usual.frames, 10 * messages_s),
            records=max(usual.records, 10 * messages_s),
            size=max(usual.size, 1.1e6 * megabytes_s),
        )


USUAL: Final = Rates()
CARRYING: Final = Rates(records=4000.0)
"""Of a relay, which passes on the streams of many nodes; only short reads are counted."""
HANDSHAKES: Final = Rates(doors=30.0, doors_at_once=300.0)
"""Of a source whose key is not known yet: many nodes may share an address."""


@dataclass(slots=True)
class Account:
    """The buckets of a key or a source. Bytes and calls in progress are added by its lines."""

    rates: Rates = USUAL
    at: float = 0.0
    calls: float = 0.0
    frames: float = 0.0
    records: float = 0.0
    size: float = 0.0
    doors: float = 0.0
    unfinished_bytes: int = 0
    unfinished_calls: int = 0
    over_since: float | None = None
    rests_until: float = -math.inf
    lines: int = 0

    def enter(self, now: float) -> str:
        """Count a new connection; return why it is refused, "" if it may come in."""
        self._leak(now)
        resting = self.resting(now)
        if resting:
            return resting
        if self.doors + 1 > self.rates.doors_at_once:
            return f"it opens more than {self.rates.doors:g} connections a second"
        self.doors += 1
        return ""

    def resting(self, now: float) -> str:
        """Return for how long connections are refused, in words; "" if they are not."""
        left = self.rests_until - now
        if left <= 0:
            return ""
        return "connections with it are refused" + (f" for {left:.0f} s" if left < math.inf else "")

    def rest(self, now: float, seconds: float) -> None:
        """Refuse new connections for some seconds."""
        self.rests_until = max(self.rests_until, now + seconds)
        self.over_since = None

    def free(self) -> bool:
        """Tell whether reading may go on; False if `pause` has to say so.

        Buckets that were not emptied since they were filled hold too much rather than too little,
        so this answer costs no look at the clock.
        """
        rates = self.rates
        return (
            self.over_since is None
            and self.calls <= CALLS_BURST_S * rates.calls
            and self.frames <= BURST_S * rates.frames
            and self.records <= BURST_S * rates.records
            and self.size <= BURST_S * rates.size
            and self.unfinished_bytes <= UNFINISHED_BYTES_MAX
            and self.unfinished_calls <= UNFINISHED_CALLS_MAX
        )

    def pause(self, now: float) -> float:
        """Return for how long nothing may be read; 0 if reading may go on now."""
        if self.free():
            return 0.0
        self._leak(now)
        rates = self.rates
        calls = self.calls / rates.calls - CALLS_BURST_S
        rest = max(self.frames / rates.frames, self.records / rates.records) - BURST_S
        full = (
            self.unfinished_bytes > UNFINISHED_BYTES_MAX
            or self.unfinished_calls > UNFINISHED_CALLS_MAX
        )
        if full or max(calls, rest) > 0:
            self.over_since = now if self.over_since is None else self.over_since
        elif calls <= -CALLS_BURST_S / 2 and rest <= -BURST_S / 2:
            self.over_since = None
        over = max(calls, rest, self.size / rates.size - BURST_S)
        return max(PAUSE_MIN_S, min(1.0, over)) if full or over > 0 else 0.0

    def floods(self, now: float) -> bool:
        """Tell whether the account has been over a bound for too long."""
        return self.over_since is not None and now - self.over_since > OVER_S

    def _leak(self, now: float) -> None:
        age, rates = max(0.0, now - self.at), self.rates
        self.at = now
        self.calls = max(0.0, self.calls - age * rates.calls)
        self.frames = max(0.0, self.frames - age * rates.frames)
        self.records = max(0.0, self.records - age * rates.records)
        self.size = max(0.0, self.size - age * rates.size)
        self.doors = max(0.0, self.doors - age * rates.doors)


@dataclass(slots=True)
class Meter:
    """The accounts of all keys and sources."""

    rates: Rates = USUAL
    _accounts: OrderedDict[str, Account] = field(default_factory=OrderedDict)

    def account(self, who: str, now: float, rates: Rates | None = None) -> Account:
        """Return the account of a key or source.

        Beyond ACCOUNTS_MAX, the accounts used longest ago are forgotten if they have no connection
        and do not rest.
        """
        account = self._accounts.get(who)
        if account is None:
            self._forget(now)
            account = self._accounts[who] = Account(rates or self.rates, now)
        self._accounts.move_to_end(who)
        return account

    def _forget(self, now: float) -> None:
        if len(self._accounts) < ACCOUNTS_MAX:
            return
        for oldest in tuple(itertools.islice(self._accounts, FORGOTTEN_AT_ONCE)):
            held = self._accounts[oldest]
            if held.lines or held.rests_until > now:
                self._accounts.move_to_end(oldest)
            else:
                del self._accounts[oldest]
