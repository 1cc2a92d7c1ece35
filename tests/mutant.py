"""A mutant, and the mutants of what bounds one member, of a node's life and of late peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one file. old: text that occurs once in the file. tests: pytest's test ids."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


LIVES: Final = {
    "lives-one-word": Mutant(
        "node/fednode/core/lives.py",
        "needed = (len(remaining) + 1) // 2 + 1",
        "needed = 1",
        ("tests/unit/core/test_lives.py",),
    ),
    "lives-speak-on": Mutant(
        "node/fednode/core/lives.py",
        "                if self.undecided:\n                    continue\n",
        "",
        ("tests/unit/core/test_lives.py",),
    ),
    "lives-any-proof": Mutant(
        "node/fednode/identity/marks.py",
        "or not self._signed(mark, self.identity)",
        "",
        ("tests/unit/identity/test_marks.py",),
    ),
}
INSIDERS: Final = {
    "zerodfl-busy": Mutant(
        "node/fednode/policies/zerodfl/exchange.py",
        "        chosen.update((peer, chosen.get(peer, 0) + 1) for peer in drawn)\n",
        "",
        ("tests/unit/policies/zerodfl/test_exchange.py",),
    ),
    "revocation-date": Mutant(
        "node/fednode/identity/lease.py",
        'self.kind != "revocation" and ',
        "",
        ("tests/unit/identity/test_trust.py",),
    ),
    "meter-frames": Mutant(
        "node/fednode/transports/meter.py",
        "and self.frames <= BURST_S * rates.frames",
        "",
        ("tests/unit/transports/test_meter.py",),
    ),
    "meter-unfinished": Mutant(
        "node/fednode/transports/meter.py",
        "self.unfinished_bytes > UNFINISHED_BYTES_MAX",
        "False",
        ("tests/unit/transports/test_meter.py",),
    ),
    "meter-doors": Mutant(
        "node/fednode/transports/meter.py",
        "self.doors + 1 > self.rates.doors_at_once",
        "False",
        ("tests/unit/transports/test_meter.py",),
    ),
    "room-fair": Mutant(
        "node/fednode/transports/room.py",
        "lost = max(self._held, key=lambda other: len(self._held[other]))",
        "lost = source if source in self._held else next(iter(self._held))",
        ("tests/unit/transports/test_room.py",),
    ),
    "room-pieces": Mutant(
        "node/fednode/transports/exchange.py",
        "self._assembling[caller] > self._room()",
        "False",
        ("tests/unit/transports/test_exchange.py",),
    ),
}
