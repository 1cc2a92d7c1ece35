"""Numbers and lists in the form that people read."""

from __future__ import annotations

from collections.abc import Sequence


def size(count: int) -> str:
    """Return a number of bytes for people, in powers of 1000."""
    return scaled(count, 1000, ("B", "kB", "MB", "GB"))


def scaled(count: float, base: int, units: Sequence[str]) -> str:
    """Return a number in the unit that suits it, without decimals in the first unit."""
    at = 0
    while count >= base and at < len(units) - 1:
        count, at = count / base, at + 1
    return f"{count:.{1 if at else 0}f} {units[at]}"


def duration(seconds: float) -> str:
    """Return seconds for people."""
    for limit, step, unit in ((60.0, 1.0, "s"), (3600.0, 60.0, "min"), (172_800.0, 3600.0, "h")):
        if seconds < limit:
            return f"{seconds / step:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def listed(names: Sequence[str], most: int) -> str:
    """Return at most so many names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
