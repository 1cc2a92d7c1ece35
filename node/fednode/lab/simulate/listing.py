"""Changes of peers.yaml while nodes run: drawn from the seed, played in the world, and judged.

Each change makes a new list of members. Each node's operator writes the change into the node's own
file at another time, and some never write that a peer has another address. When the faults end,
all files list the same members.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final

from fednode.core.events import Answer, Effect, Event, Received, Relisted, Send, TimerFired
from fednode.core.life import Life
from fednode.core.members.swim import PROBE
from fednode.core.members.table import GONE
from fednode.core.rounds.transfer import QUESTIONS
from fednode.core.settings import STRICT, bounded
from fednode.lab.simulate.check import Check, Violation
from fednode.lab.simulate.faults import switch_on
from fednode.sim.listed import Files
from fednode.sim.world import World

CHANGES_MAX: Final = 12
MEMBERS_MIN: Final = 2
LATE: Final = 0.15
"""Share of changes that an operator writes only when the faults end, and all later ones with it."""
WRITES_S: Final = 4.0
"""The longest time until another operator writes a change."""
ACTS_S: Final = 3.0
"""The longest time from a new list until the node that it is about starts, moves or stops."""
OFF_S: Final = 1.5
"""The longest time that a node is off while its operator gives it another address."""
BYE_S: Final = 0.5
"""The time from `fednode leave` until the process ends."""
NEW, GONE_OFF, GONE_LEFT, GONE_RUNS = "new", "gone, stops", "gone, leaves", "gone, runs on"
BACK, RESTARTS, MOVES = "back", "restarts elsewhere", "moves"
REMOVALS: Final = (GONE_OFF, GONE_LEFT, GONE_RUNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingSettings:
    """What may happen to the files of a mesh.

    changes: fewest and most. stale: the share (0..1) of operators that never write that a peer has
    another address. insecure: the share of seeds whose nodes have no keys. absent: the share of
    seeds in which a listed node is off at the start. remote: the share in which nodes wait for all
    listed peers before round one, without end.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    changes: tuple[int, int] = (1, 6)
    stale: float = 0.2
    insecure: float = 0.25
    absent: float = 0.25
    remote: float = 0.5

    def __post_init__(self) -> None:
        bounded("listing.changes", self.changes[0], 0)
        bounded("listing.changes", self.changes[1], self.changes[0], CHANGES_MAX)
        for key in ("stale", "insecure", "absent", "remote"):
            bounded(f"listing.{key}", getattr(self, key), 0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnChange:
    """A change of the list: at which time (virtual seconds), of what kind, and of which node.

    address: of the node from then on. acts_s: time until the node itself starts, moves or stops.
    """

    at: float
    kind: str
    name: str
    address: str
    acts_s: float

    def __str__(self) -> str:
        where = f" at {self.address}" if self.kind in {RESTARTS, MOVES} else ""
        return f"{self.at:.2f} s {self.name} {self.kind}{where} ({self.acts_s:.2f} s later)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnListing:
    """The changes of a seed. absent: listed nodes that are off at the start."""

    keys: bool
    remote: bool
    absent: tuple[str, ...] = ()
    changes: tuple[DrawnChange, ...] = ()

    def __str__(self) -> str:
        keys = "keys" if self.keys else "no keys"
        waits = "waits for all" if self.remote else "waits 5 s"
        off = f"; off at first: {' '.join(self.absent)}" if self.absent else ""
        return "; ".join([f"{keys}, {waits}{off}", *map(str, self.changes)])

    def steps(self, names: Sequence[str]) -> list[tuple[DrawnChange, dict[str, str]]]:
        """Return the changes that can be made, and the list after each. names: listed at first."""
        entries, steps = {name: name for name in names}, list[tuple[DrawnChange, dict[str, str]]]()
        met = {*names}
        for change in self.changes:
            listed = change.name in entries
            possible = {NEW: change.name not in met, BACK: not listed and change.name in met}
            removes = change.kind in REMOVALS and len(entries) > MEMBERS_MIN
            moves = change.kind in {RESTARTS, MOVES}
            if not possible.get(change.kind, listed and (removes or moves)):
                continue  # a smaller case left out an earlier change
            entries = {name: at for name, at in entries.items() if name != change.name}
            if change.kind not in REMOVALS:
                entries[change.name] = change.address
            met.add(change.name)
            steps.append((change, entries))
        return steps

    def last(self, names: Sequence[str]) -> list[str]:
        """Return the members at the end."""
        steps = self.steps(names)
        return sorted(steps[-1][1] if steps else names)

    @property
    def later(self) -> list[str]:
        """The nodes that are not listed at first."""
        return [change.name for change in self.changes if change.kind == NEW]


def draw_listing(
    settings: ListingSettings, names: Sequence[str], chance: random.Random, end_s: float
) -> DrawnListing:
    """Draw the changes of a seed, which all begin before end_s."""
    changes, listed = list[DrawnChange](), dict.fromkeys(names, 1)
    away = dict[str, int]()
    for at in sorted(chance.uniform(0, end_s) for _ in range(chance.randint(*settings.changes))):
        kinds = [NEW, RESTARTS, MOVES, MOVES]
        kinds += [*REMOVALS, *REMOVALS] if len(listed) > MEMBERS_MIN else []
        kinds += [BACK] * 4 if away else []
        kind = chance.choice(kinds)
        among = sorted(away if kind == BACK else listed)
        name = f"new{len(changes) + 1}" if kind == NEW else chance.choice(among)
        number = away.get(name) or listed.get(name) or 1
        if kind in {RESTARTS, MOVES}:  # sometimes back to where it was before
            number = chance.choice([number + 1, number + 1, max(1, number - 1)])
        address = name if number == 1 else f"{name}.{number}"
        acts_s = chance.uniform(0, ACTS_S)
        changes.append(DrawnChange(at=at, kind=kind, name=name, address=address, acts_s=acts_s))
        listed.pop(name, None)
        away.pop(name, None)
        (away if kind in REMOVALS else listed)[name] = number
    absent = (chance.choice(list(names)),) if chance.random() < settings.absent else ()
    return DrawnListing(
        keys=chance.random() >= settings.insecure,
        remote=chance.random() < settings.remote,
        absent=absent,
        changes=tuple(changes),
    )


@dataclass(slots=True)
class Listing:
    """The files of one world, and what becomes of its nodes.

    names: the nodes that are listed at first. end_s: when the faults end.
    """

    world: World
    settings: ListingSettings
    drawn: DrawnListing
    names: Sequence[str]
    seed: int
    end_s: float
    files: Files = field(init=False)
    _last: dict[str, str] = field(init=False)  # the list at the end, with the true addresses
    _copied: dict[str, int] = field(default_factory=dict)  # by node: the change it took whole
    _out: set[str] = field(default_factory=set)  # nodes whose removal or stop was played

    def __post_init__(self) -> None:
        world = self.world
        self.files = world.trust = Files(world.hosts, self.drawn.keys)
        world.network.places |= {name: name for name in (*self.names, *self.drawn.later)}
        self._last = {name: name for name in self.names}

    def begin(self) -> None:
        """Write the first files, and enter all changes into the world's clock."""
        for name in self.names:
            self._write(name, self._last)
        for name in (*self.drawn.absent, *self.drawn.later):
            self.world.hosts[name].away = True
        for name in self.drawn.absent:
            chance = random.Random(f"{self.seed} {name}")
            self._plan(chance.uniform(0, self.end_s), partial(self._start, name))
        wrote, acted = dict[str, float](), dict[str, float]()
        for number, (change, entries) in enumerate(self.drawn.steps(self.names)):
            self._last, who = entries, change.name
            chance = random.Random(f"{self.seed} {change}")
            acted[who] = max(change.at + change.acts_s, acted.get(who, 0.0))
            self._plan(acted[who], self._act(change, chance.uniform(0.1, OFF_S)))
            if change.kind in {NEW, BACK}:
                wrote[who] = change.at
                self._plan(change.at, self._copy(who, number, entries))
            for name in sorted({*entries} - {who}):
                after = change.at + chance.uniform(0, WRITES_S)
                after = self.end_s if chance.random() < LATE else after
                wrote[name] = max(after, wrote.get(name, 0.0))
                keeps = chance.random() < self.settings.stale
                self._plan(wrote[name], self._edit(name, number, change, keeps))

    def _plan(self, at: float, act: Callable[[], None]) -> None:
        self.world.at(min(at, self.end_s), act)

    # What operators do ----------------------------------------------------------------------------

    def _write(self, name: str, entries: Mapping[str, str]) -> None:
        """Change a node's file; a node that is on reads it."""
        others = {one: at for one, at in entries.items() if one != name}
        event = self.files.write(name, others)
        if event is not None:
            self.world.tell(name, event)

    def _copy(self, name: str, number: int, entries: Mapping[str, str]) -> Callable[[], None]:
        """Return what gives a node that comes, or comes back, the whole list."""

        def act() -> None:
            self._copied[name] = number
            self._write(name, entries)

        return act

    def _edit(self, name: str, number: int, change: DrawnChange, keeps: bool) -> Callable[[], None]:
        """Return what writes one change into a node's file. keeps: the old address stays."""

        def act() -> None:
            if number < self._copied.get(name, 0):
                return  # the list that it took has the change
            listed = self.world.hosts[name].listed
            entries = {one: at for one, at in listed.items() if one != change.name}
            if change.kind not in REMOVALS:
                moves = change.kind in {RESTARTS, MOVES}
                old = listed.get(change.name, change.address)
                entries[change.name] = old if keeps and moves else change.address
            self._write(name, entries)

        return act

    def _act(self, change: DrawnChange, off_s: float) -> Callable[[], None]:
        """Return what becomes of the node that a change is about. off_s: while it restarts."""
        name, world = change.name, self.world

        def act() -> None:
            if change.kind in REMOVALS:
                self._out.add(name)
            if change.kind in {NEW, BACK}:
                self._start(name, back=True)
            elif change.kind == GONE_OFF:
                self._stop(name)
            elif change.kind == GONE_LEFT:
                world.command(name, "leave")
                world.at(BYE_S, lambda: self._stop(name))
            elif change.kind == MOVES:
                world.network.places[name] = change.address
                world.tell(name, Relisted((), own=change.address))
            elif change.kind == RESTARTS:
                world.network.places[name] = change.address
                world.crash(name)
                world.at(off_s, lambda: switch_on(world, name))

        return act

    def _stop(self, name: str) -> None:
        if name in self._out:
            self.world.hosts[name].away = True
            self.world.crash(name)

    def _start(self, name: str, back: bool = False) -> None:
        """Take a node into service. back: although it was removed before."""
        kernel = self.world.hosts[name].kernel
        if back:
            self._out.discard(name)
            if kernel is not None and kernel.view().life == Life.LEAVING:
                self.world.crash(name)
        if name not in self._out:
            self.world.hosts[name].away = False
            switch_on(self.world, name)

    # What must hold -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Give all files the same members, and switch on members that are still off.

        Of two nodes at least one knows where the other is; no other node can tell them.
        """
        hosts, true = self.world.hosts, self._last
        for name in true:
            held = {one: hosts[name].listed.get(one, at) for one, at in true.items()}
            lost = {one for one in held if hosts[one].listed.get(name, true[name]) != true[name]}
            self._write(name, held | {one: true[one] for one in lost})
            hosts[name].full = False
            self._start(name, back=True)
            self.world.command(name, "resume")

    def wrong(self, honest: Sequence[str]) -> str:
        """Return which honest node does not see the listed members where they are; "" if none."""
        for name in honest:
            host = self.world.hosts[name]
            if host.kernel is None:
                return f"{name} is off"
            peers = host.kernel.view().peers
            seen = {peer.name: peer.state for peer in peers if peer.state not in GONE}
            if seen != {one: "alive" for one in self._last if one != name}:
                return f"{sorted(self._last)} are listed, and {name} sees {seen}"
            for one in seen:
                said, true = host.addresses.get(one, one), self.world.network.places[one]
                if said != true:
                    return f"{one} is at {true}, and {name} calls it at {said}"
        return ""

    def judge(self, honest: Sequence[str]) -> None:
        """Raise Violation if there is such a node."""
        if text := self.wrong(honest):
            raise Violation("ListedAreSeen", text)


@dataclass(slots=True)
class GoneStayOut(Check):
    """A node has nothing to do with a peer from the time that its file lists the peer no more.

    It takes no message of the peer, sends it none, and does not see it as a member. Only an answer
    that it owed the peer may still go out; with keys, no host carries it.
    """

    _listed: dict[str, set[str]] = field(default_factory=dict)

    def started(self, world: World, name: str) -> None:
        """Note which peers the file lists."""
        self._listed[name] = {*world.hosts[name].listed}

    def stepped(self, world: World, name: str, event: Event, effects: Sequence[Effect]) -> None:
        """Judge what the node takes and sends, and now and then what it sees."""
        listed = self._listed[name]
        if isinstance(event, Relisted):
            listed -= {*event.gone}
            listed |= {update.name for update in event.news}
        for effect in effects:
            if isinstance(effect, Send) and effect.message.phase not in QUESTIONS:
                self._sends(world, name, effect)
            taken = isinstance(effect, Answer) and effect.code == "ok"
            if taken and isinstance(event, Received) and event.message.sender not in listed:
                text = f"takes a {event.message.phase!r} of {event.message.sender}, which is gone"
                raise self.broken(world, name, text)
        if isinstance(event, Relisted) or event == TimerFired(PROBE):
            for peer in world.kernel(name).view().peers:
                if peer.name not in listed and peer.state not in GONE:
                    text = f"sees {peer.name} as {peer.state} and does not list it"
                    raise self.broken(world, name, text)

    def _sends(self, world: World, name: str, sent: Send) -> None:
        if sent.to not in self._listed[name]:
            text = f"sends a {sent.message.phase!r} to {sent.to}, which it does not list"
            raise self.broken(world, name, text)


def place_listing(
    world: World,
    settings: ListingSettings | None,
    drawn: DrawnListing | None,
    names: Sequence[str],
    seed: int,
    end_s: float,
) -> Listing | None:
    """Put the changes of a seed into a world; None if the scenario has none."""
    if settings is None or drawn is None:
        return None
    return Listing(world, settings, drawn, names, seed, end_s)
