"""Places for connections of callers that are not known yet, shared fairly among their sources."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Iterator

Held = dict[str, dict["asyncio.Task[object]", None]]


def source_of(host: str) -> str:
    """Return the part of an address that one caller controls: IPv4 address, or /64 of IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


class Room:
    """Tasks that hold a place; if none is left, the source with most tasks loses its oldest.

    So a newcomer always gets a place, and a source that wants many places takes them from itself.
    """

    def __init__(self) -> None:
        self._held: Held = {}

    @contextlib.contextmanager
    def place(self, source: str, most: int) -> Iterator[str]:
        """Hold one of `most` places; yield the source that lost a place for it, or ""."""
        lost = ""
        if sum(map(len, self._held.values())) >= most:
            lost = max(self._held, key=lambda other: len(self._held[other]))
            oldest = next(iter(self._held[lost]))
            self._leave(lost, oldest)
            oldest.cancel()
        task = asyncio.current_task()
        assert task is not None
        self._held.setdefault(source, {})[task] = None
        try:
            yield lost
        finally:
            self._leave(source, task)

    def _leave(self, source: str, task: asyncio.Task[object]) -> None:
        held = self._held.get(source, {})
        held.pop(task, None)
        if not held:
            self._held.pop(source, None)
