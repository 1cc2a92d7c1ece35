"""Leaky buckets: what each of many callers does in a second, on average and at once."""

from __future__ import annotations


class Buckets:
    """A bucket for each caller. Callers of this class give the time, from a monotonic clock."""

    def __init__(self, rate: float, burst: float, most: int) -> None:
        """Set up. rate: acts a second. burst: acts at once. most: callers that are remembered."""
        self._rate, self._burst, self._most = rate, burst, most
        self._held: dict[str, tuple[float, float]] = {}  # the level of a bucket, and when

    def __len__(self) -> int:
        return len(self._held)

    def take(self, who: str, now: float) -> bool:
        """Count an act of a caller; return False, and count nothing, if it is one too many."""
        if who not in self._held and len(self._held) >= self._most:
            return False
        level = self._level(who, now)
        if level + 1 > self._burst:
            return False
        self._held[who] = level + 1, now
        return True

    def sweep(self, now: float) -> None:
        self._held = {who: held for who, held in self._held.items() if self._level(who, now) > 0}

    def _level(self, who: str, now: float) -> float:
        level, at = self._held.get(who, (0.0, now))
        return max(0.0, level - (now - at) * self._rate)
