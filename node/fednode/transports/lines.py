"""All connections of a node as the meter sees them: who may open one, and which ones are closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from fednode.transports.line import Crumbled, Flood, Line
from fednode.transports.meter import CARRYING, HANDSHAKES, REST_S, Account, Meter, Rates
from fednode.transports.session import PeerRejected

VISIT_REST_S: Final = 15.0
"""How long the source of visitors that flood gets no new connection."""


class Lines:
    """The connections of each key, and the tasks that carry them; of visitors: of each source."""

    def __init__(self, rates: Rates, visits: bool) -> None:
        """Set up. rates: what a key may say. visits: whether those who call are visitors."""
        self._meter, self._visits = Meter(rates), visits
        self._lines: dict[asyncio.Task[object], tuple[str, Line]] = {}

    def knock(self, source: str) -> None:
        """Count a connection from a source, ahead of its handshake; raise PeerRejected."""
        why = self._account(source, HANDSHAKES).enter(_now())
        if why:
            raise PeerRejected("connections", why)

    def enter(self, id: str) -> None:
        """Count a connection of a proven key; raise PeerRejected if it may not come in."""
        why = "" if self._visits else self._account(id).enter(_now())
        if why:
            raise PeerRejected("connections", f"{id}: {why}", id)

    @contextlib.contextmanager
    def serve(self, id: str, source: str, via: str = "") -> Iterator[Line]:
        """Meter a connection that came in; raise PeerRejected if it floods.

        via: the relay that passed it on; "" for none.
        """
        who, rates = (source, HANDSHAKES) if self._visits else (id, None)
        line = Line(
            self._account(who, rates),
            asyncio.get_running_loop().time,
            serving=True,
            visit=self._visits,
            carrier=self._carrier(via),
        )
        with self._held(who, line, VISIT_REST_S if self._visits else REST_S):
            yield line

    @contextlib.contextmanager
    def call(self, id: str, via: str = "") -> Iterator[Line]:
        """Meter a connection that this node opened; raise PeerRejected if the key may not have it.

        The other end may flood here, too.
        """
        account, clock = self._account(id), asyncio.get_running_loop().time
        resting = account.resting(clock())
        if resting:
            raise PeerRejected("connections", f"{id}: {resting}", id)
        line = Line(account, clock, serving=False, carrier=self._carrier(via))
        with self._held(id, line, REST_S):
            yield line

    def turn_away(self, who: str, seconds: float) -> None:
        """Close the connections of a key or source, and refuse new ones for some seconds."""
        self._account(who).rest(_now(), seconds)
        for task, (held, _) in tuple(self._lines.items()):
            if held == who and task is not asyncio.current_task():
                task.cancel()

    def sweep(self) -> None:
        """Close connections with calls that stay unfinished."""
        for task, (_, line) in tuple(self._lines.items()):
            if line.overdue():
                task.cancel()

    @contextlib.contextmanager
    def _held(self, who: str, line: Line, rest_s: float) -> Iterator[None]:
        """Hold a connection; if it floods, close all of its key, and let none in for a while."""
        task = asyncio.current_task()
        assert task is not None
        self._lines[task] = who, line
        try:
            yield
        except Flood as fault:
            self.turn_away(who, rest_s)
            text = f"{fault}; connections with it are refused for {rest_s:g} s"
            raise PeerRejected("flood", text, "" if self._visits else who) from fault
        except Crumbled as fault:
            raise PeerRejected("relay", f"a stream ended: {fault}") from fault
        finally:
            del self._lines[task]
            line.close()

    def _carrier(self, via: str) -> Account | None:
        return self._account(f"carrier {via}", CARRYING) if via else None

    def _account(self, who: str, rates: Rates | None = None) -> Account:
        return self._meter.account(who, _now(), rates)


def _now() -> float:
    return asyncio.get_running_loop().time()
