"""Relays of a scenario: drawn from the seed, placed in the world, and their faults."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from fednode.core.events import Effect, Event, Regained, TimerFired
from fednode.core.members.swim import PROBE
from fednode.core.settings import STRICT, bounded
from fednode.lab.simulate.check import Violation
from fednode.sim.relays import LIES, Relay, Relays
from fednode.sim.world import World

RELAYS_MAX: Final = 4
SLOW_S: Final = 1.0
"""What a slow relay adds to each frame."""
DEAD_S: Final = 90.0
"""Greetings go to one absent member an interval; a node that seems at fault has longer ones."""
RELAY_FAULTS: Final = ("relay-dies", "relay-hangs", "relay-slows", "relay-drains")
FORGETS: Final = "relay-forgets"
NODE_FAULTS: Final = ("nat-opens", "nat-shuts")


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """The relays of a mesh.

    count: fewest and most. lies: what hostile relays do; one relay at least is honest. shut: the
    share (0..1) of nodes that nobody can dial at the start. faults: the most of each kind.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    count: tuple[int, int] = (1, 2)
    lies: tuple[str, ...] = ()
    shut: float = 1.0
    faults: int = 2

    def __post_init__(self) -> None:
        bounded("relays.count", self.count[0], 1)
        bounded("relays.count", self.count[1], self.count[0], RELAYS_MAX)
        bounded("relays.shut", self.shut, 0, 1)
        bounded("relays.faults", self.faults, 0)
        for lie in self.lies:
            if lie not in LIES:
                raise ValueError(f"relays.lies names {lie!r}; there are {', '.join(LIES)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRelays:
    """The relays of a seed: the lie of each by name, "" for an honest one, and who is shut."""

    lies: dict[str, str] = field(default_factory=dict)
    shut: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = ", ".join(f"{name} {lie or 'honest'}" for name, lie in self.lies.items())
        return f"relays {said}; nobody dials {' '.join(self.shut) or '(none)'}"


Drawn = tuple[float, str, tuple[str, ...], float]
"""A fault: when it begins, its kind, whom it meets, how long it lasts."""


def draw_relays(
    settings: RelaySettings, names: tuple[str, ...], chance: random.Random, end_s: float
) -> tuple[DrawnRelays, list[Drawn]]:
    """Draw the relays of a seed, and their faults, which begin before end_s."""
    count = chance.randint(*settings.count)
    liars = chance.randint(0, count - 1) if settings.lies else 0
    lying = set(chance.sample(range(count), liars))
    lies = {
        f"r{number + 1}": chance.choice(settings.lies) if number in lying else ""
        for number in range(count)
    }
    shut = tuple(name for name in names if chance.random() < settings.shut)
    return DrawnRelays(lies=lies, shut=shut), _faults(settings, sorted(lies), names, chance, end_s)


def _faults(
    settings: RelaySettings,
    relays: list[str],
    names: tuple[str, ...],
    chance: random.Random,
    end_s: float,
) -> list[Drawn]:
    found: list[Drawn] = []
    for kind in (*RELAY_FAULTS, FORGETS, *NODE_FAULTS):
        for _ in range(chance.randint(0, settings.faults)):
            at, both = chance.uniform(0, end_s), (chance.choice(relays), chance.choice(names))
            whom = both[1:] if kind in NODE_FAULTS else both if kind == FORGETS else both[:1]
            found.append((at, kind, whom, chance.uniform(0.05, max(0.1, end_s - at))))
    return found


def place_relays(
    world: World, drawn: DrawnRelays | None, names: tuple[str, ...], seed: int
) -> None:
    """Put the relays of a seed, if it has some, between the nodes of a world."""
    if drawn is None:
        return
    world.network.relays = Relays(
        random.Random(seed),
        names,
        lambda: world.now,
        world.at,
        lambda name: world.tell(name, Regained()),
        set(drawn.shut),
        {name: Relay(name, lie) for name, lie in drawn.lies.items()},
    )
    world.checkers.append(NobodyStaysDead())


class NobodyStaysDead:
    """No member stays dead for long at a node while a path between the two is whole."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], float] = {}

    def started(self, world: World, name: str) -> None:
        """Forget a node that was off."""
        self._since = {pair: at for pair, at in self._since.items() if name not in pair}

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        """Look once in each interval of a node's failure detector."""
        if event != TimerFired(PROBE):
            return
        for peer in world.kernel(name).view().peers:
            pair = name, peer.name
            if peer.state != "dead" or not self._whole(world, *pair):
                self._since.pop(pair, None)
                continue
            dead_s = world.now - self._since.setdefault(pair, world.now)
            if dead_s > DEAD_S:
                text = f"{name} takes {peer.name} for dead for {dead_s:.0f} s, and a path is whole"
                raise Violation("NobodyStaysDead", text)

    def _whole(self, world: World, name: str, peer: str) -> bool:
        relays, network = of(world), world.network
        steady = all(relay.state == "up" and not relay.slow_s for relay in relays.all.values())
        both = ((name, peer), (peer, name))
        reached = all(relays.path_exists(*pair) and network.passes(*pair) for pair in both)
        return steady and reached and world.hosts[peer].kernel is not None


def of(world: World) -> Relays:
    """Return the relays of a world that has some."""
    assert world.network.relays is not None
    return world.network.relays
