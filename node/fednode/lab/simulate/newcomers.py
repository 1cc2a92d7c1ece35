"""Members that join in mid-run by leases of sponsors, and sponsors that lie.

The first node of a mesh is its founder; it and some others are sponsors. A newcomer knows its
sponsor alone, and asks again while the sponsor is off or cut away. A sponsor that lies gossips its
lie with each message. When the faults end, the founder revokes it, and the revocation lists the
leases that it gave to real newcomers: those stay.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from fednode.core.events import Told
from fednode.core.settings import STRICT, bounded
from fednode.core.types import Message, Update
from fednode.lab.simulate.check import Violation
from fednode.sim.host import Liar
from fednode.sim.leases import Leases
from fednode.sim.world import World

NEWCOMERS_MAX: Final = 5
AGAIN_S: Final = 1.0
"""How long a newcomer waits before it asks again."""
CONTACTS_MAX: Final = 8
GHOST: Final = "ghost"
"""A name that no node has."""
TWO_KEYS: Final = "two-keys"
DATES_BACK: Final = "dates-back"
REVOKES: Final = "revokes"
SPONSOR_LIES: Final = (TWO_KEYS, DATES_BACK, REVOKES)
"""It gives the names of newcomers to other keys; it gives leases with an early date, also after its
key was revoked; it revokes leases that others gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewcomerSettings:
    """Members that join later.

    count: fewest and most. sponsors: the most sponsors beside the founder. lies: what a sponsor
    that lies does; the founder does not lie.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    count: tuple[int, int] = (1, 3)
    sponsors: int = 2
    lies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        bounded("newcomers.count", self.count[0], 1)
        bounded("newcomers.count", self.count[1], self.count[0], NEWCOMERS_MAX)
        bounded("newcomers.sponsors", self.sponsors, 0)
        for lie in self.lies:
            if lie not in SPONSOR_LIES:
                known = ", ".join(SPONSOR_LIES)
                raise ValueError(f"newcomers.lies names {lie!r}; there are {known}.")


@dataclass(frozen=True, slots=True)
class DrawnNewcomers:
    """The newcomers of a seed: by name the moment and the sponsor. founder: the first node."""

    founder: str
    joins: dict[str, tuple[float, str]] = field(default_factory=dict)

    def __str__(self) -> str:
        said = [f"{name} by {sponsor} at {at:.2f} s" for name, (at, sponsor) in self.joins.items()]
        return f"founder {self.founder}; {', '.join(said)}"


def draw_newcomers(
    settings: NewcomerSettings, names: Sequence[str], chance: random.Random, end_s: float
) -> tuple[DrawnNewcomers, dict[str, str]]:
    """Draw the newcomers of a seed, and the lie of each sponsor that lies."""
    most = min(settings.sponsors, len(names) - 1)
    sponsors = [names[0], *chance.sample(list(names[1:]), chance.randint(0, most))]
    lying = sponsors[1:2] if settings.lies and chance.random() < 0.5 else []
    lies = {name: chance.choice(settings.lies) for name in lying}
    joins = {
        f"new{number + 1}": (chance.uniform(0, end_s), chance.choice(sponsors))
        for number in range(chance.randint(*settings.count))
    }
    return DrawnNewcomers(names[0], joins), lies


class Growth:
    """The growth of one world: who has which key, who admits whom, who lies."""

    def __init__(
        self, world: World, drawn: DrawnNewcomers, names: Sequence[str], lies: dict[str, str]
    ) -> None:
        """Give each founding member a lease of the mesh key, and let newcomers come."""
        self._world, self._drawn, self._names, self._lies = world, drawn, names, lies
        self._gone = set[str]()  # sponsors that were revoked
        self._given: dict[str, dict[str, bytes]] = {}  # leases of real newcomers, by sponsor
        self.leases = world.trust = Leases(lambda: world.now)
        for name in names:
            self.leases.shown[name] = f"key-{name}", self.leases.give("", name, f"key-{name}", 0.0)

    def begin(self) -> None:
        """Let sponsors lie, and newcomers ask at their time; the founding members run."""
        for name, lie in self._lies.items():
            self._world.hosts[name].liar = Liar(_Lies(self.leases, name, lie, self._drawn))
        for name, (at, sponsor) in self._drawn.joins.items():
            self._ask_later(at, name, sponsor)

    def _ask_later(self, delay_s: float, name: str, sponsor: str) -> None:
        self._world.at(delay_s, lambda: self._ask(name, sponsor))

    def _ask(self, name: str, sponsor: str) -> None:
        """Admit a newcomer, if its sponsor is there; the founder stands in for a revoked one."""
        world, leases = self._world, self.leases
        sponsor = self._drawn.founder if sponsor in self._gone else sponsor
        both = ((name, sponsor), (sponsor, name))
        there = world.hosts[sponsor].kernel is not None
        if not there or not all(world.network.passes(*pair) for pair in both):
            self._ask_later(AGAIN_S, name, sponsor)
            return
        proof = leases.give(f"key-{sponsor}", name, f"key-{name}")
        self._given.setdefault(sponsor, {})[name] = proof
        leases.shown[name] = f"key-{name}", proof
        own = [Update(who, "alive", 0, who, *leases.shown[who]) for who in (sponsor, name)]
        others = [
            peer for peer in world.kernel(sponsor).view().peers if peer.answers and peer.proof
        ]
        met = [Update(one.name, "alive", 0, one.name, one.id, one.proof) for one in others]
        self._tell(sponsor, own[1:])
        world.start(name)
        self._tell(name, [own[0], *met[:CONTACTS_MAX]])

    def _tell(self, name: str, news: Sequence[Update]) -> None:
        self._world.tell(name, Told(self.leases.believed(name, "", news)))

    def settle(self) -> None:
        """Let the founder revoke the sponsors that lie; what they gave real newcomers stays."""
        for liar in self._lies:
            self._gone.add(liar)
            id, stay = f"key-{liar}", self._given.get(liar, {}).values()
            proof = self.leases.end("", liar, id, stay)
            self._tell(self._drawn.founder, [Update(liar, "revoked", 0, "", id, proof)])

    def judge(self, honest: Sequence[str]) -> None:
        """Raise Violation if two honest nodes hold different keys for a name, or a false one."""
        if text := self.wrong(honest):
            raise Violation("OneKeyAName", text)

    def wrong(self, honest: Sequence[str]) -> str:
        """Return which honest nodes hold different keys for a name, or a false one; "" if none.

        A node need not know those that run under other settings than it does.
        """
        names = [*self._names, *self._drawn.joins, GHOST]
        for name in names:
            true = "" if name == GHOST or name in self._lies else f"key-{name}"
            held = {at: self.leases.id_of(at, name) for at in honest if at != name}
            known = {at: id for at, id in held.items() if id or not self._apart(at, name)}
            if wrong := {at: id for at, id in known.items() if id != true}:
                return f"the key of {name} is {true or 'none'}, and nodes hold {wrong}"
        return ""

    def _apart(self, at: str, name: str) -> bool:
        """Tell whether two nodes run under different settings; a ghost runs under none."""
        hosts = self._world.hosts
        return name in hosts and hosts[at].desk.force.digest != hosts[name].desk.force.digest


class _Lies:
    """Adds a sponsor's lie to each of its messages."""

    def __init__(self, leases: Leases, own: str, lie: str, drawn: DrawnNewcomers) -> None:
        self._leases, self._key, self._lie, self._drawn = leases, f"key-{own}", lie, drawn
        self._made: dict[str, Update] = {}

    def __call__(self, to: str, message: Message) -> list[tuple[str, Message]]:
        """Return the message with the lie."""
        if self._lie == DATES_BACK:
            proof = self._leases.give(self._key, GHOST, "key-evil", 0.0)
            self._made[GHOST] = Update(GHOST, "alive", 0, "", "key-evil", proof)
        for name in self._drawn.joins:
            if name in self._leases.shown and name not in self._made:
                self._made |= self._about(name)
        return [(to, replace(message, members=(*message.members, *self._made.values())))]

    def _about(self, name: str) -> dict[str, Update]:
        if self._lie == TWO_KEYS:
            proof = self._leases.give(self._key, name, "key-evil")
            return {name: Update(name, "alive", 0, "", "key-evil", proof)}
        if self._lie == REVOKES:
            id, lease = self._leases.shown[name]
            if lease.decode().endswith(self._key):  # of its own newcomers this is no lie
                return {}
            proof = self._leases.end(self._key, name, id)
            return {name: Update(name, "revoked", 0, "", id, proof)}
        return {}
