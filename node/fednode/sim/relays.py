"""The relays of a simulated mesh: a route is direct, or two legs through a relay where both wait.

It models what nodes notice of relays and of NATs (node/fednode/transports/links.py, exits.py): a
relay that dies resets its streams at once, a hung one is lost after SILENT_S, a node returns to a
relay after a pause, a call that comes late moves to another path, and a relay that was caught lying
comes last. Times are of the daemon's constants.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

DIRECT: Final = "direct"
SILENT_S: Final = 6.0
BACK_S: Final = (0.4, 1.9)
"""How long a node takes to wait at a relay again."""
LATE_S: Final = 2.0
"""How long a call waits for its answer before another path is tried."""
TRY_AGAIN_S: Final = 15.0
"""How often the direct way is tried while a pair is relayed."""
DISTRUST_S: Final = 60.0
DELAY_S: Final = 0.1
"""What a relay that delays adds to each frame; a simulated send gives up after TIMEOUT_S."""
LIES: Final = ("drop", "delay", "absent", "wrong", "false")
"""What hostile relays do: carry nothing, carry slowly, deny that a node waits, connect with another
node, name another caller."""

Pair = tuple[str, str]
"""Caller and called."""


@dataclass(slots=True)
class Relay:
    """One relay. since: when its present state began. slow_s: what it adds to each frame."""

    name: str
    lie: str = ""
    state: str = "up"
    since: float = 0.0
    slow_s: float = 0.0
    away: dict[str, float] = field(default_factory=dict)  # by node: from when on it waits again


@dataclass(slots=True)
class Stream:
    """An open path of a pair. silent: when a call on it first got no answer; None if none did.

    other: the node at its other end, where it is not the one that was called.
    """

    via: str
    opened: float
    silent: float | None = None
    other: str = ""


@dataclass(slots=True)
class Relays:
    """The relays of a mesh and the paths between its nodes.

    now: the time. shut: nodes that nobody can dial. regained: told of a node that found no relay
    and finds one again.
    """

    chance: random.Random
    names: tuple[str, ...]
    now: Callable[[], float]
    after: Callable[[float, Callable[[], None]], None]
    regained: Callable[[str], None] = lambda _: None
    shut: set[str] = field(default_factory=set)
    all: dict[str, Relay] = field(default_factory=dict)
    _streams: dict[Pair, Stream] = field(default_factory=dict)
    _asking: Pair | None = None
    _caught: dict[tuple[str, Pair], float] = field(default_factory=dict)

    # Faults ---------------------------------------------------------------------------------------

    def die(self, name: str) -> None:
        """End a relay: its streams are reset at once."""
        self._become(name, "dead")
        self._lose(lambda stream: stream.via == name)

    def hang(self, name: str) -> None:
        """Let a relay answer nothing; nodes close their streams after SILENT_S."""
        self._become(name, "hung")
        self.after(SILENT_S, lambda: self._notice(name))

    def drain(self, name: str) -> None:
        """Let a relay take no new streams; nodes move to another where they can."""
        self._become(name, "draining")
        self._lose(lambda stream: stream.via == name)

    def slow(self, name: str, more_s: float) -> None:
        """Let a relay carry every frame later; 0 ends it."""
        self.all[name].slow_s = more_s

    def forget(self, name: str, node: str) -> None:
        """Let a relay forget a node; the node hears no ping and waits there again later."""
        self._wait(self.all[name], node, SILENT_S)

    def back(self, name: str) -> None:
        """Bring a relay back; nodes wait there again one after another."""
        if self.all[name].state != "up":
            self._become(name, "up")
            for node in self.names:
                self._wait(self.all[name], node)

    def close(self, node: str) -> None:
        """Shut a node's firewall: what was open carries nothing any more."""
        self.shut.add(node)

    def open(self, node: str) -> None:
        """Let others dial a node."""
        self.shut.discard(node)

    def heal(self) -> None:
        """End all faults of relays; lies and firewalls stay."""
        for name, relay in self.all.items():
            relay.slow_s = 0.0
            self.back(name)

    # Paths ----------------------------------------------------------------------------------------

    def reaches(self, caller: str, called: str) -> bool:
        """Tell whether a call can begin; open a path for it if there is none."""
        self._asking = caller, called
        return self._path(self._asking) is not None

    def end(self, caller: str, called: str) -> str:
        """Open a path for a call if there is none; return the node at its other end."""
        self._asking = caller, called
        stream = self._path(self._asking)
        return stream.other or called if stream else called

    def _whole(self, caller: str, called: str) -> bool:
        """Tell whether a stream carries bytes."""
        stream = self._streams.get((caller, called))
        if stream is None:
            return False
        if stream.via == DIRECT:
            return called not in self.shut
        relay = self.all[stream.via]
        return relay.state not in {"hung", "dead"} and relay.lie != "drop"

    def carries(self, sender: str, to: str) -> float | None:
        """Return how much later a frame arrives; None if it does not.

        A reply takes the way of its call.
        """
        asks, self._asking = self._asking, None
        pair = asks if asks is not None and asks[0] == sender else (to, sender)
        stream = self._streams.get(pair)
        if stream is None:
            return None
        if not self._whole(*pair):
            stream.silent = self.now() if stream.silent is None else stream.silent
            return None
        stream.silent = None
        if stream.via == DIRECT:
            return 0.0
        relay = self.all[stream.via]
        return relay.slow_s + (DELAY_S if relay.lie == "delay" else 0.0)

    def path_exists(self, caller: str, called: str) -> bool:
        """Tell whether honest nodes should reach each other now."""
        honest = (relay for relay in self.all.values() if not relay.lie)
        return called not in self.shut or any(
            self._waits(relay, caller) and self._waits(relay, called) for relay in honest
        )

    def _path(self, pair: Pair) -> Stream | None:
        now, stream = self.now(), self._streams.get(pair)
        if stream is not None and stream.silent is not None and now - stream.silent >= LATE_S:
            self._caught[stream.via, pair] = now
            self._give_up(pair)
            stream = self._streams.get(pair)
        direct = pair[1] not in self.shut
        if stream is not None and stream.via != DIRECT and direct:
            stream = stream if now - stream.opened < TRY_AGAIN_S else None
        if stream is None:
            stream = Stream(DIRECT, now) if direct else self._relayed(pair)
            if stream is not None:
                self._streams[pair] = stream
        return stream

    def _relayed(self, pair: Pair) -> Stream | None:
        """Return a stream through the first relay that connects a pair, distrusted ones last."""
        now = self.now()

        def distrusted(relay: Relay) -> bool:
            return now - self._caught.get((relay.name, pair), -DISTRUST_S) < DISTRUST_S

        for relay in sorted(self.all.values(), key=distrusted):
            lost = relay.state == "hung" and now - relay.since >= SILENT_S
            if lost or relay.state in {"dead", "draining"} or relay.lie == "absent":
                continue
            if not (self._waits(relay, pair[0]) and self._waits(relay, pair[1])):
                continue
            other = self._misled(pair) if relay.lie == "wrong" else ""
            if relay.lie == "false" or self._refused(pair[1], other):
                self._caught[relay.name, pair] = now
                continue
            return Stream(relay.name, now, other=other)
        return None

    def _misled(self, pair: Pair) -> str:
        """Return the node with which a relay connects a caller in place of the one that it called.

        It is a third node, or the caller itself.
        """
        return next((name for name in self.names if name not in pair), pair[0])

    def _refused(self, called: str, other: str) -> bool:
        """Tell whether a caller refuses who answers: it compares the key with the id it called."""
        return bool(other)

    def _waits(self, relay: Relay, node: str) -> bool:
        waits = relay.state in {"up", "draining", "hung"}
        return waits and relay.away.get(node, 0.0) <= self.now()

    def _wait(self, relay: Relay, node: str, more_s: float = 0.0) -> None:
        delay = more_s + self.chance.uniform(*BACK_S)
        relay.away[node] = self.now() + delay

        def there() -> None:
            others = (one for one in self.all.values() if one is not relay)
            alone = not any(one.state == "up" and self._waits(one, node) for one in others)
            if relay.state == "up" and alone:
                self.regained(node)

        self.after(delay, there)

    def _become(self, name: str, state: str) -> None:
        self.all[name].state, self.all[name].since = state, self.now()

    def _notice(self, name: str) -> None:
        """Close the streams of a relay that is still silent."""
        relay = self.all[name]
        if relay.state == "hung" and self.now() - relay.since >= SILENT_S:
            self._lose(lambda stream: stream.via == name)

    def _lose(self, which: Callable[[Stream], bool]) -> None:
        for pair, stream in tuple(self._streams.items()):
            if which(stream):
                self._give_up(pair)

    def _give_up(self, pair: Pair) -> None:
        del self._streams[pair]
